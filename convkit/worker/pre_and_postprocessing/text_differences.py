"""Compares the constants that an app applies to texts with the original's tokenizer."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.preprocessing_constants import TextConstants

# Texts of different lengths, so that one is padded.
_SAMPLES = ("A short text.", "A text with several more words than the other one has.")
_SIDES = ("padding_side", "truncation_side")
# So many tokens that every text with a few words is cut.
_FEW_TOKENS = 6


def text_findings(
    name: str,
    place: str,
    declared: TextConstants,
    tokenizer: Any,  # noqa: ANN401 - transformers' tokenizers have no useful type
    texts: Sequence[str],
) -> list[Finding]:
    """Return C527 for each constant that changes the tokens of the original's tokenizer."""
    samples = list(texts[:16]) if len(set(map(len, texts))) > 1 else [*texts[:14], *_SAMPLES]
    own = _own(tokenizer)
    found = []
    for key, value in dataclasses.asdict(declared).items():
        if value is None or value == own[key]:
            continue
        if key == "max_length":
            if own[key] is None or value < int(own[key]):
                continue  # shorter than the model allows is the app's choice
            moved = ""
        else:
            changed = sum(
                one != other
                for one, other in zip(
                    _encoded(tokenizer, samples, {}, cut=key == "truncation_side"),
                    _encoded(tokenizer, samples, {key: value}, cut=key == "truncation_side"),
                    strict=True,
                )
            )
            moved = f": it changes the tokens of {changed} of {len(samples)} texts"
        found.append(
            Finding(
                "C527",
                f"{name!r}: {key} is {_text(value)}, the original's tokenizer has"
                f" {_text(own[key])}{moved}.",
                Place(tensor=name),
                {"declared": value, "original": own[key]},
                Remedy(
                    f"Write {key}: {_text(own[key])} in the recipe and use it in the app.",
                    {f"{place}.text.{key}": own[key]},
                    proven=True,
                ),
            )
        )
    return found


def _own(tokenizer: Any) -> dict[str, Json]:  # noqa: ANN401
    longest = int(getattr(tokenizer, "model_max_length", 0) or 0)
    return {
        "padding_side": tokenizer.padding_side,
        "truncation_side": tokenizer.truncation_side,
        "add_special_tokens": True,
        # transformers writes 1e30 where nothing is known.
        "max_length": longest if 0 < longest < 10**9 else None,
    }


def _encoded(
    tokenizer: Any,  # noqa: ANN401
    texts: Sequence[str],
    constants: dict[str, Json],
    *,
    cut: bool,
) -> list[Json]:
    before = {side: getattr(tokenizer, side) for side in _SIDES}
    try:
        for side in _SIDES:
            setattr(tokenizer, side, constants.get(side, before[side]))
        special = constants.get("add_special_tokens", True)
        limits = {"truncation": True, "max_length": _FEW_TOKENS} if cut else {}
        encoded = tokenizer(list(texts), padding=True, add_special_tokens=special, **limits)
    finally:
        for side, value in before.items():
            setattr(tokenizer, side, value)
    return list(encoded["input_ids"])


def _text(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Resolves `keep_float32: auto` of a quantized target in the precision stage, and reports the
decision.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.messages import ProductFamily, Quantization
from convkit.protocol.metrics.limits import Limits, overshoot, problems
from convkit.protocol.module_naming import in_words
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.quantization.module_choice import Kept, choose_kept
from convkit.worker.precision.quantization.module_sensitivity import KEPT, table
from convkit.worker.precision.search_judgment import Round, sound_cases, telling_limits

Feeds = Mapping[str, np.ndarray]

_SHOWN = 10  # modules in the table
_NAMED = 5  # modules in a message


def decide_quantization(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    calibration_feeds: Sequence[Feeds] | None,
    families: Sequence[ProductFamily],
    *,
    narrows: bool = False,
) -> tuple[Quantization, Kept, list[Finding]]:
    """Determine what stays in float32; return the quantization with it, the search, and N208 or
    N209. `narrows`: weights may get seven bits for it.

    The quantizer's own findings are left to the build, except one that leaves nothing to decide.
    """
    telling = telling_limits(limits, sound_cases(cases))
    kept = choose_kept(
        source, quantization, cases, telling, calibration_feeds, families, narrows=narrows
    )
    if not kept.met and telling != limits:  # rounding alone may leave more than a part of a spread
        kept = choose_kept(
            source, quantization, cases, limits, calibration_feeds, families, narrows=narrows
        )
    decided = dataclasses.replace(quantization.keeping(kept.patterns), equalize=kept.equalized)
    if kept.met and kept.seven_bits:
        decided = dataclasses.replace(decided, reduce_range=True)
    change: dict[str, Json] = {KEPT: list(kept.patterns)}
    if kept.equalized:
        change["target.precision.equalize"] = True
    if decided.reduce_range:
        change["target.precision.reduce_range"] = True
    return decided, kept, [_searched(kept, change, limits)]


def _shortened(patterns: Sequence[str]) -> str:
    """Return patterns in words, the costliest first; the finding's evidence has all of them."""
    more = f" and {len(patterns) - _NAMED} more" if len(patterns) > _NAMED + 1 else ""
    named = patterns[:_NAMED] if more else patterns
    return (in_words(named) or "nothing") + more


def _searched(kept: Kept, change: dict[str, Json], limits: Mapping[str, Limits]) -> Finding:
    last = kept.rounds[-1]
    evidence: dict[str, Json] = {
        "keep_float32": list(kept.patterns),
        "rounds": [encode(each.as_protocol()) for each in kept.rounds],
        "modules": table(kept.sensitivity.modules[:_SHOWN]) if kept.sensitivity is not None else [],
    }
    names = _shortened(kept.patterns)
    if kept.met:
        ways = ["channels that are scaled to be alike (equalize: true)"] * kept.equalized
        ways += ["weights of seven bits (reduce_range: true)"] * kept.seven_bits
        how = f", with {' and '.join(ways)}" if ways else ""
        return Finding(
            "N208",
            f"keep_float32: auto keeps {names} in float32 and meets the tolerance, as measured on"
            f" the quantized model{how}",
            Place(),
            evidence,
            Remedy("Write these patterns into the recipe.", change, proven=True),
        )
    factor = last.as_protocol().overshoot
    how_far = "NaN or infinity" if factor is None else f"{factor:.3g} times the tolerance"
    message = (
        f"no plan meets the tolerance: with {names} in float32, the error of case {last.case!r} is"
        f" {how_far}"
    )
    if last.met:
        message = (
            "no plan quantizes anything within the tolerance: it is met only with everything in"
            f" float32{_with_all_quantized(kept.rounds[0], limits)}"
        )
    if kept.seven_bits:
        remedy = Remedy(
            "Use 7-bit weights (reduce_range: true): then the tolerance is met with nothing in"
            " float32, because sums of two products saturate on no processor.",
            {"target.precision.reduce_range": True},
            proven=True,
        )
        return Finding("N209", message, Place(case=last.case or None), evidence, remedy)
    return Finding(
        "N209",
        message,
        Place(case=last.case or None),
        evidence,
        Remedy(
            "Name modules under keep_float32 yourself, or relax the tolerance if you can justify"
            " it."
        ),
    )


def _with_all_quantized(first: Round, limits: Mapping[str, Limits]) -> str:
    """Return what is off most with everything quantized."""
    measured = first.metrics.get(first.case, ())
    worst = max(measured, key=lambda one: overshoot(one, limits.get(one.output, {})), default=None)
    found = problems(worst, limits.get(worst.output, {})) if worst is not None else ()
    if worst is None or not found:
        return ""
    return f"; with everything quantized, {worst.output!r} has {found[0].message}"

"""Greedy generation: the tokens with which a language model continues each row."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_axes
from convkit.protocol.messages import Evaluation
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.tokenized_texts import Tokenizer
from convkit.worker.cases.values.padding_masks import real_positions
from convkit.worker.evaluate.row_reading import Predictions
from convkit.worker.job_context import StageFailedError, UnfitDataError

NOTHING = -1  # what follows the token that ends a row
_TOKENIZER = "tokenizer.json"
_ENDS = "ends.json"


@dataclasses.dataclass(frozen=True)
class TokenWriter:
    """How tokens end and become text. `decode` is None for a model without a tokenizer."""

    ends: Sequence[int]
    decode: Callable[[list[int]], str] | None

    def row(self, tokens: np.ndarray) -> str | list[int]:
        """Return a row's text, or without a tokenizer its tokens."""
        kept = [int(each) for each in tokens if each != NOTHING]
        return kept if self.decode is None else self.decode(kept)


def save_writer(folder: Path, tokenizer: Tokenizer | None) -> TokenWriter:
    """Write what a stage without transformers needs to read tokens; raises StageFailedError for a
    tokenizer that only transformers can run.
    """
    ends: list[int] = []
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        made: Any = tokenizer()
        made = getattr(made, "tokenizer", made)  # of a processor
        backend = getattr(made, "backend_tokenizer", None)
        if backend is None:
            raise StageFailedError(
                "evaluate.generate: the model's tokenizer has no fast version (tokenizer.json), and"
                " nothing else can turn tokens into text where built models run"
            )
        (folder / _TOKENIZER).write_text(backend.to_str(), encoding="utf-8")
        ends = [made.eos_token_id] if made.eos_token_id is not None else []
    (folder / _ENDS).write_text(json.dumps(ends), encoding="utf-8")
    return read_writer(folder)


def read_writer(folder: Path) -> TokenWriter:
    """Return what `save_writer` wrote."""
    ends = json.loads((folder / _ENDS).read_text(encoding="utf-8"))
    if not (folder / _TOKENIZER).exists():
        return TokenWriter(ends, None)
    from tokenizers import Tokenizer as Reader

    reader = Reader.from_file(str(folder / _TOKENIZER))
    return TokenWriter(ends, lambda tokens: str(reader.decode(tokens, skip_special_tokens=True)))


def generated_axis(evaluation: Evaluation, contract: Contract) -> str:
    """Return the axis of the positions that generation fills."""
    (spec,) = (each for each in contract.inputs if each.name == evaluation.tokens)
    return str(spec.shape[1])


def with_room(feeds: Feeds, evaluation: Evaluation, contract: Contract) -> Feeds:
    """Return inputs with places for the tokens to come, behind those of each row. Raises
    UnfitDataError if the axis has no room for them.
    """
    assert evaluation.generate is not None
    assert evaluation.tokens is not None
    if evaluation.tokens not in feeds:
        raise UnfitDataError(
            "evaluate.generate",
            f"the rows do not say what {evaluation.tokens} begins with",
            f"Give it a column of the data, under evaluate.inputs: {evaluation.tokens}.",
            tensor=evaluation.tokens,
        )
    axis, room = generated_axis(evaluation, contract), evaluation.generate
    longest = feeds[evaluation.tokens].shape[1]
    most = contract.axis(axis).max
    if longest + room > most:
        raise UnfitDataError(
            "evaluate.generate",
            f"the longest row has {longest} tokens; {room} more are over axes.{axis}.max, {most}",
            f"Raise axes.{axis}.max, shorten the rows, or lower evaluate.generate.",
            tensor=evaluation.tokens,
        )
    specs = {spec.name: spec for spec in contract.inputs}
    return {name: _padded(values, specs[name], axis, room) for name, values in feeds.items()}


def _padded(values: np.ndarray, spec: TensorSpec, axis: str, room: int) -> np.ndarray:
    widths = [
        (0, room if isinstance(size, str) and axis in dimension_axes(size) else 0)
        for size in spec.shape
    ]
    return np.pad(np.asarray(values), widths, constant_values=spec.padding)


def prompts(feeds: Feeds, given: Feeds, evaluation: Evaluation) -> Feeds:
    """Return inputs whose mask, if rows say nothing about it, covers their own tokens only."""
    mask = evaluation.mask
    if mask is None or mask in given:
        return feeds
    assert evaluation.generate is not None
    seen = np.full_like(feeds[mask], 1 - evaluation.padding)
    seen[:, seen.shape[1] - evaluation.generate :] = evaluation.padding
    return {**feeds, mask: seen}


def generate_tokens(
    run: Callable[[Feeds], Feeds], feeds: Feeds, evaluation: Evaluation, ends: Sequence[int]
) -> np.ndarray:
    """Return the most probable token after each row, and after each that follows, [rows, tokens];
    NOTHING behind one of `ends`.

    Every call has all places, and the mask marks those still empty. A causal model does not look
    ahead, so they change nothing. Raises ValueError for scores that are NaN, or not
    [rows, positions, tokens].
    """
    assert evaluation.tokens is not None
    assert evaluation.generate is not None
    given = {name: np.array(values) for name, values in feeds.items()}
    tokens, mask = given[evaluation.tokens], given.get(evaluation.mask or "")
    rows = np.arange(len(tokens))
    lengths = (
        np.full(len(tokens), tokens.shape[1] - evaluation.generate)
        if mask is None
        else real_positions(mask, evaluation.padding).sum(axis=1)
    )
    made = np.full((len(tokens), evaluation.generate), NOTHING, np.int64)
    going = np.ones(len(tokens), dtype=bool)
    for step in range(evaluation.generate):
        scores = np.asarray(run(given)[evaluation.output])
        if scores.ndim != 3 or scores.shape[:2] != tokens.shape:
            raise ValueError(f"scores of the shape {scores.shape} for tokens of {tokens.shape}")
        last = scores[rows, lengths - 1].astype(np.float64)
        if np.isnan(last[going]).any():
            raise ValueError(f"it returns NaN for generated token {step + 1}")
        best = last.argmax(axis=1)
        made[going, step] = best[going]
        tokens[rows, lengths] = best
        if mask is not None:
            mask[rows, lengths] = 1 - evaluation.padding
        lengths = lengths + 1
        going &= ~np.isin(best, ends)
        if not going.any():
            break
    return made


def written(writer: TokenWriter, predictions: Predictions) -> list[str | list[int]]:
    """Return each row's text; without a tokenizer, its tokens."""
    (rows,) = predictions.values()
    return [writer.row(each) for each in rows]


def check_labels(labels: Sequence[Any], writer: TokenWriter) -> None:
    """Raise UnfitDataError for texts as labels of a model whose tokens cannot become text."""
    if writer.decode is None and any(isinstance(each, str) for each in labels):
        raise UnfitDataError(
            "evaluate.labels",
            "the labels are texts, and the model has no tokenizer to make text of its tokens",
            "Write each label as a list of token ids.",
        )
    if writer.decode is not None and not all(isinstance(each, str) for each in labels):
        raise UnfitDataError(
            "evaluate.labels",
            "the labels are not texts, which is what the model's tokenizer makes of its tokens",
            "Write each label as the text that the model should generate.",
        )

"""Runs the user's rows: the original once, at the reference; a built model when it is verified."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import Evaluation, EvaluationMetrics
from convkit.protocol.numpy_dtypes import without_bits
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.case_files import read_tensors, write_tensors
from convkit.worker.cases.tokenized_texts import Tokenizer
from convkit.worker.cases.values.padding_masks import padding_positions
from convkit.worker.evaluate.greedy_generation import (
    TokenWriter,
    check_labels,
    generate_tokens,
    read_writer,
    save_writer,
    written,
)
from convkit.worker.evaluate.paired_bootstrap import compare_decisions
from convkit.worker.evaluate.row_batches import batches_of
from convkit.worker.evaluate.row_reading import Predictions, Rows, read_rows
from convkit.worker.evaluate.task_scores import Scorer, scorer_of
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.sessions import RunFailedError

_FOLDER = "evaluation"
_INDEX = "batches.json"


@dataclasses.dataclass(frozen=True)
class _Stored:
    name: str
    start: int
    stop: int
    column: str


def run_rows(
    evaluation: Evaluation,
    made_from: CaseInputs,
    tokenizer: Tokenizer | None,
    run: Callable[[Feeds], Feeds],
    output: Path,
) -> None:
    """Run the original on every row; write inputs and outputs below `output`. Raises
    StageFailedError if it refuses a row.
    """
    folder = output / _FOLDER
    stored = []
    (spec,) = (each for each in made_from.contract.outputs if each.name == evaluation.output)
    rows = read_rows(evaluation)
    scorer = scorer_of(evaluation, spec.postprocess, _documents(evaluation, rows))
    writer = None
    if evaluation.generate is not None:
        writer = save_writer(folder, tokenizer)
        if evaluation.labels:
            check_labels(rows.column(evaluation.labels), writer)
    answer = _answers(run, evaluation, scorer, writer)
    for batch in batches_of(rows, evaluation, made_from, tokenizer):
        try:
            outputs = answer(batch.feeds)
        except RunFailedError as error:
            raise StageFailedError(
                f"evaluate: the original refuses rows {batch.start} to {batch.stop - 1}: {error}"
            ) from error
        except ValueError as error:
            raise StageFailedError(f"evaluate: {evaluation.metric}: {error}") from error
        write_tensors(folder, batch.name, "inputs", batch.feeds)
        kept = {evaluation.output: outputs[evaluation.output]}
        write_tensors(folder, batch.name, "outputs", kept)
        stored.append(_Stored(batch.name, batch.start, batch.stop, batch.column))
    (folder / _INDEX).write_text(json.dumps(encode(stored)), encoding="utf-8")


def score_built(
    evaluation: Evaluation,
    contract: Contract,
    run: Callable[[Feeds], Feeds],
    reference: Path,
    progress: Callable[[str, float], None],
) -> EvaluationMetrics:
    """Run a built model on the rows of a reference, and compare its score with the original's."""
    rows = read_rows(evaluation)
    (spec,) = (each for each in contract.outputs if each.name == evaluation.output)
    documents = _documents(evaluation, rows)
    scorer = scorer_of(evaluation, spec.postprocess, documents)
    folder = reference / _FOLDER
    writer = read_writer(folder) if evaluation.generate is not None else None
    if writer is not None:
        scorer = dataclasses.replace(scorer, decide=functools.partial(written, writer))
    answer = _answers(run, evaluation, scorer, writer)
    stored = decode(tuple[_Stored, ...], json.loads((folder / _INDEX).read_text(encoding="utf-8")))
    original: Predictions = {}
    candidate: Predictions = {}
    for number, batch in enumerate(stored):
        progress(f"task metric: row {batch.start}", number / len(stored))
        feeds = read_tensors(folder, batch.name, "inputs", contract.inputs)
        expected = _readable(read_tensors(folder, batch.name, "outputs", (spec,)))
        try:
            found = _readable(answer(feeds))
        except RunFailedError as error:
            return _no_score(evaluation, rows.count, f"the runtime failed on a row: {error}")
        except ValueError as error:
            return _no_score(evaluation, rows.count, str(error))
        if evaluation.output not in found:
            return _no_score(evaluation, rows.count, f"it has no output {evaluation.output!r}")
        count = batch.stop - batch.start
        if _has_nan(found[evaluation.output][:count]) and not _has_nan(
            expected[evaluation.output][:count]
        ):
            where = f"rows {batch.start} to {batch.stop - 1}"
            return _no_score(evaluation, rows.count, f"it returns NaN in {where}")
        for outputs, predictions in ((expected, original), (found, candidate)):
            mask = (
                padding_positions(feeds, evaluation.mask, evaluation.padding)
                if batch.column
                else None
            )
            pooled = _per_row(outputs[evaluation.output], mask, pooled=bool(batch.column))
            predictions.setdefault(batch.column, []).extend(pooled[:count])
    decided = scorer.decide(original), scorer.decide(candidate)
    labels: Sequence[Any] = decided[0] if scorer.by_original else [None] * rows.count
    if evaluation.labels:
        labels = list(rows.column(evaluation.labels))
    labels = documents or labels
    return compare_decisions(evaluation.metric, scorer, *decided, labels)


def _documents(evaluation: Evaluation, rows: Rows) -> list[Any]:
    """Return what each row's first text is to find: its label, or its second text."""
    if not evaluation.retrieves:
        return []
    return list(rows.column(evaluation.labels or evaluation.texts[1]))


def _answers(
    run: Callable[[Feeds], Feeds],
    evaluation: Evaluation,
    scorer: Scorer,
    writer: TokenWriter | None,
) -> Callable[[Feeds], Feeds]:
    """Return a model whose scored output is what is kept of it: what it generates, what the scorer
    condenses, or the output itself. Raises ValueError for outputs that cannot be used.
    """

    def generated(feeds: Feeds) -> Feeds:
        assert writer is not None

        def readable(given: Feeds) -> Feeds:
            return _readable(run(given))

        return {evaluation.output: generate_tokens(readable, feeds, evaluation, writer.ends)}

    def condensed(feeds: Feeds) -> Feeds:
        assert scorer.condense is not None
        outputs = _readable(run(feeds))
        if evaluation.output not in outputs:
            return outputs
        return {evaluation.output: scorer.condense(outputs, feeds, evaluation)}

    if writer is not None:
        return generated
    return run if scorer.condense is None else condensed


def _readable(outputs: Feeds) -> dict[str, np.ndarray]:
    return {name: without_bits(values) for name, values in outputs.items()}


def _per_row(values: np.ndarray, padding: np.ndarray | None, *, pooled: bool) -> list[np.ndarray]:
    """Return the output of each row. Of texts, it is averaged over the tokens that are not padding,
    which is how sentence encoders are read.
    """
    values = np.asarray(values)
    if not pooled or values.ndim < 3:
        return list(values)
    kept = np.ones(values.shape[:2], dtype=bool) if padding is None else ~padding
    weights = kept[..., None].astype(np.float64)
    return list((values * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0))


def _has_nan(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _no_score(evaluation: Evaluation, rows: int, error: str) -> EvaluationMetrics:
    nan = float("nan")
    return EvaluationMetrics(evaluation.metric, rows, nan, nan, nan, nan, nan, error=error)

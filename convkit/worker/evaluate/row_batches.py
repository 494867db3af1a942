"""Turns rows into batches of the model's inputs."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from convkit.protocol.contract import Axis, TensorSpec
from convkit.protocol.messages import Evaluation
from convkit.protocol.numpy_dtypes import numpy_dtype
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.tokenized_texts import Tokenizer, text_batches
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.evaluate.greedy_generation import generated_axis, prompts, with_room
from convkit.worker.evaluate.row_reading import Rows
from convkit.worker.job_context import StageFailedError, UnfitDataError
from convkit.worker.pre_and_postprocessing.images import prepared_batch, read_image


@dataclasses.dataclass(frozen=True)
class RowBatch:
    """The inputs of the rows from `start` to `stop`, in their order, perhaps with more rows behind
    them. `column` is the column of texts that they come from.
    """

    name: str
    start: int
    stop: int
    feeds: Feeds
    column: str = ""


def batches_of(
    rows: Rows, evaluation: Evaluation, made_from: CaseInputs, tokenizer: Tokenizer | None
) -> Iterator[RowBatch]:
    """Yield the batches of all rows; raises UnfitDataError for rows that do not fit the inputs.

    Inputs that neither the rows nor the tokenizer determine are drawn by their samples.
    """
    if not evaluation.texts:
        yield from _of_arrays(rows, evaluation, made_from)
        return
    for column in evaluation.texts:
        texts = [str(text) for text in rows.column(column)]
        # Tokens are predicted from those before them: padding in front of them would count.
        side: Literal["right"] | None = "right" if evaluation.tokens else None
        found = text_batches(made_from, texts, tokenizer, side)
        if isinstance(found, str):
            raise StageFailedError(f"evaluate.texts: {found}")
        start = 0
        for number, (batch, sizes, tokens) in enumerate(found):
            stop = min(start + len(batch), rows.count)
            name = f"evaluate:{column}:{number}"
            given = sizes | _empty(evaluation, made_from)
            feeds = _drawn(given, tokens, name, evaluation, made_from)
            yield RowBatch(name, start, stop, feeds, column)
            start = stop


def _of_arrays(rows: Rows, evaluation: Evaluation, made_from: CaseInputs) -> Iterator[RowBatch]:
    specs = {spec.name: spec for spec in made_from.contract.inputs}
    given = {
        name: _column(rows, name, column, specs[name]) for name, column in evaluation.inputs.items()
    }
    first = specs[next(iter(given))]
    extent = _extent(first, made_from)
    for number, start in enumerate(range(0, rows.count, extent.typical)):
        stop = min(start + extent.typical, rows.count)
        chosen = list(range(start, stop))
        chosen += [chosen[-1]] * (extent.min - len(chosen))
        feeds = {name: _values(specs[name], column, chosen) for name, column in given.items()}
        sizes = made_from.contract.typical_sizes() | _empty(evaluation, made_from)
        for fed, values in feeds.items():
            sizes |= specs[fed].sizes_from(values.shape)
        name = f"evaluate:{number}"
        yield RowBatch(name, start, stop, _drawn(sizes, feeds, name, evaluation, made_from))


def _drawn(
    sizes: dict[str, int], given: Feeds, name: str, evaluation: Evaluation, made_from: CaseInputs
) -> Feeds:
    """Return all inputs of a batch: the given ones, and the others drawn by their samples."""
    if evaluation.generate is None:
        return made_from.draw(sizes, Draw(name)) | given
    given = with_room(given, evaluation, made_from.contract)
    assert evaluation.tokens is not None
    axis = generated_axis(evaluation, made_from.contract)
    sizes = sizes | {axis: given[evaluation.tokens].shape[1]}
    return prompts(made_from.draw(sizes, Draw(name)) | given, given, evaluation)


def _empty(evaluation: Evaluation, made_from: CaseInputs) -> dict[str, int]:
    return {name: made_from.contract.axis(name).min for name in evaluation.empty}


def _column(rows: Rows, name: str, column: str, spec: TensorSpec) -> np.ndarray | Sequence[Path]:
    """Return a column as one array, or as the images' files, which are read batch by batch."""
    values = rows.column(column)
    if not isinstance(values[0], Path):
        return _array(rows, name, column, spec)
    if spec.preprocess is None or spec.preprocess.image is None:
        raise UnfitDataError(
            f"evaluate.inputs.{name}",
            f"{rows.file} is a folder of images, and the recipe does not say how an image becomes"
            f" {name}",
            f"Add preprocess: {{image: ...}} to the input {name}; see docs/preprocessing.md.",
            tensor=name,
        )
    return values


def _values(spec: TensorSpec, column: np.ndarray | Sequence[Path], rows: list[int]) -> np.ndarray:
    """Return a batch of an input: rows of an array, or images as the contract prepares them."""
    if isinstance(column, np.ndarray):
        return np.asarray(column[rows])
    assert spec.preprocess is not None
    key = f"evaluate.inputs.{spec.name}"
    pictures = [read_image(column[row], key, spec.name) for row in rows]
    made = prepared_batch(spec.preprocess, pictures)
    return np.asarray(made.astype(numpy_dtype(spec.dtype)))


def _array(rows: Rows, name: str, column: str, spec: TensorSpec) -> np.ndarray:
    """Return a column as one array in an input's type, whose first axis are the rows."""
    try:
        values = np.asarray(rows.column(column))
    except ValueError as error:
        raise UnfitDataError(
            f"evaluate.inputs.{name}",
            f"the rows of {column!r} in {rows.file} differ in shape: {error}",
            "Pad the rows, or cut them, to one shape.",
            tensor=name,
        ) from error
    if values.dtype.kind not in "biuf" or values.ndim != len(spec.shape):
        raise UnfitDataError(
            f"evaluate.inputs.{name}",
            f"a row of {column!r} in {rows.file} is {values.dtype} with {values.ndim - 1} axes;"
            f" {spec} needs {len(spec.shape) - 1}",
            "Save numbers, one row per entry of the first axis, shaped like the input without its"
            " first axis.",
            tensor=name,
        )
    cast = values.astype(numpy_dtype(spec.dtype))
    if spec.dtype.startswith(("int", "uint")) and not np.array_equal(cast, values):
        raise UnfitDataError(
            f"evaluate.inputs.{name}",
            f"{spec.dtype} cannot hold the values of {column!r} in {rows.file}",
            f"Save whole numbers within the range of {spec.dtype}.",
            tensor=name,
        )
    return np.asarray(cast)


def _extent(spec: TensorSpec, made_from: CaseInputs) -> Axis:
    """Return the number of rows per call: the input's first axis, or its fixed size."""
    size = spec.shape[0] if spec.shape else 1
    if isinstance(size, int):
        return Axis("rows", size, size, size)
    return made_from.contract.axis(str(size))

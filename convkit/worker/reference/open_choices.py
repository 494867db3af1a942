"""Finds outputs that are places of scores which the original chooses from: of a largest value, of
the best k, in order.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch._ops import OpOverload

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseRecord
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.equal_scores import ScoredPlaces, write_scores
from convkit.worker.original.dispatch_mode import OperationMode
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.reference.original_model import OriginalModel

# Operations that return places along their argument `dim`, and which of their results these are.
_PLACES = {
    "aten::argmax": None,
    "aten::argmin": None,
    "aten::max.dim": 1,
    "aten::min.dim": 1,
    "aten::topk": 1,
    "aten::sort": 1,
    "aten::sort.stable": 1,
    "aten::kthvalue": 1,
    "aten::median.dim": 1,
    "aten::nanmedian.dim": 1,
    "aten::mode": 1,
}


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Places, and the scores they were chosen from. Rows have the shape of the places."""

    places: np.ndarray
    scored: ScoredPlaces


class _Choices(OperationMode):
    """Collects what operations choose while the mode is on."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Choice] = []

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        result = function(*args, **kwargs)
        if function.name() in _PLACES:
            at = _PLACES[function.name()]
            places = result if at is None else result[at]
            axis = _argument(function, "dim", args, kwargs)
            self.found += _choice(to_array(args[0]), axis, to_array(places))
        return result


def _argument(
    function: OpOverload, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - an argument of an operation
    """Return an argument of a call, or its default."""
    for position, each in enumerate(function._schema.arguments):  # noqa: SLF001 - torch has no other way
        if each.name == name:
            return args[position] if position < len(args) else kwargs.get(name, each.default_value)
    raise ValueError(f"{function.name()} has no argument {name!r}")


def write_open_choices(
    original: OriginalModel, contract: Contract, records: Sequence[CaseRecord], folder: Path
) -> None:
    """Write the scores of each output that is a place of equal ones, for each case of the ladder.
    Runs the original once more for each case, until one shows that no output is a choice.
    """
    labels = [spec.name for spec in contract.outputs if spec.dtype in ("int64", "int32")]
    for record in records if labels else ():
        if record.kind != "ladder" or not record.runnable:
            continue
        feeds = read_tensors(folder, record.name, "inputs", contract.inputs)
        outputs = read_tensors(folder, record.name, "outputs", contract.outputs)
        with _Choices() as seen:
            original.run(feeds)
        scored = _scored({name: outputs[name] for name in labels}, seen.found)
        if not scored and any(outputs[name].size for name in labels):
            break
        for name, each in scored.items():
            if each.has_equals(outputs[name]).any():
                write_scores(folder, record.name, {name: each})


def _scored(outputs: Feeds, choices: Sequence[_Choice]) -> dict[str, ScoredPlaces]:
    """Return the outputs that are the places of a choice, whatever their shape."""
    found = {}
    for name, values in outputs.items():
        for choice in choices:
            if np.array_equal(choice.places.ravel(), values.ravel()):
                rows = choice.scored.rows.reshape(values.shape)
                found[name] = dataclasses.replace(choice.scored, rows=rows)
                break
    return found


def _choice(scores: np.ndarray, axis: int | None, places: np.ndarray) -> list[_Choice]:
    """Return what was chosen along an axis, or from all scores; nothing if there is no choice."""
    if axis is None:
        scores, places, axis = scores.reshape(-1), places.reshape(-1), 0
    if not scores.ndim or not scores.shape[axis] or not places.size:
        return []
    last = np.moveaxis(scores, axis, -1)
    rows = np.arange(last[..., 0].size).reshape(last.shape[:-1])
    if places.ndim == scores.ndim:
        rows = np.broadcast_to(np.expand_dims(rows, axis), places.shape)
    table = np.ascontiguousarray(last.reshape(-1, last.shape[-1]))
    return [_Choice(places, ScoredPlaces(table, np.ascontiguousarray(rows.reshape(places.shape))))]

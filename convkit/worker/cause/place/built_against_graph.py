"""Finds where a runtime diverges from what it was built from: compares its tensors with those of
the exported graph, which onnxruntime computes without optimizations, with those of float64 where
onnxruntime itself is off, or with those of any other record.

For graphs that agree with the original: the difference is then the runtime's own.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from convkit.worker.cause.graphs.float64_graph import moving_nodes, run_in_float64
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values, reads
from convkit.worker.cause.matching.relative_difference import largest_error, relative_error
from convkit.worker.cause.place.lost_nan import Computes, holds_nan, nan_guard, nan_is_lost
from convkit.worker.cause.place.other_wording import other_wording

# In parts of a tensor's rms. Kernels of any kind agree to a few digits less than float32 has.
_SAME = 1e-4
# The fraction of the outputs' error that may remain after an explanation.
_REMAINS = 0.1
_MOST_PLACES = 8
_INT32 = np.iinfo(np.int32)


class ExposedModel(Protocol):
    """A built model of which intermediate tensors can be had, by the names of its source."""

    def tensors(self) -> Collection[str]:
        """Return the names that it knows."""
        ...

    def run(self, feeds: Values, exposed: Sequence[str], put: Values) -> Mapping[str, np.ndarray]:
        """Return outputs and exposed tensors, with the `put` values replacing the tensors that all
        readers see.

        Raises RunFailedError, ModelRefusedError.
        """
        ...


@dataclasses.dataclass(frozen=True)
class BuiltDifference:
    """Why a built model differs from its graph. Errors are the outputs', relative to their RMS.

    fused: the outputs are correct once `names` are exposed, which prevents the runtime from fusing
    their producers with later nodes. computed: these tensors are wrong although their inputs are
    correct, and the correct values fix the outputs. wide: more tensors are wrong than were
    corrected, and the first has a whole number that int32 cannot hold or is computed from one.
    unplaced: none of these. `beyond` is that number, also of what was computed.
    `instead` is code that computes that tensor right, tried on the case's values. `loses_nan`: it
    is wrong where an input is NaN.
    """

    kind: str
    names: tuple[str, ...]
    before: float
    after: float
    beyond: int | None = None
    instead: str | None = None
    loses_nan: bool = False


def compare_built(
    graph: Graph,
    model: ExposedModel,
    feeds: Values,
    original: Values | None = None,
    computes: Computes | None = None,
) -> BuiltDifference | None:
    """Return why a built model's outputs differ from its graph's; None if they do not, or if the
    graph itself cannot be run. If the `original` outputs are given, a graph that onnxruntime
    computes wrong and float64 right is compared with float64. Whole numbers and truth values are
    compared as floats are; what is computed from sizes alone is not. `computes` runs a model in the
    same runtime.
    """
    known = set(model.tensors())
    moving = moving_nodes(graph, feeds)
    names = [
        name for node in graph.nodes if id(node) in moving for name in node.output if name in known
    ]
    try:
        expected = _expected(graph, [*names, *graph.outputs], feeds, original)
    except PieceFailedError:
        return None
    found = compare_exposed(model, feeds, expected, tuple(graph.outputs), names)
    if found is None or found.kind not in ("computed", "unplaced") or not found.names:
        return found
    first, right = found.names[0], {**expected, **feeds}
    if found.kind == "unplaced":
        beyond = _beyond_int32(graph, first, right)
        if beyond is None:
            return found
        return BuiltDifference("wide", (first,), found.before, found.after, beyond)
    node = graph.nodes[graph.producers[first]]
    read = [right[name] for name in node.input if name in right]
    instead = other_wording(node, read[0] if read else None, right[first])
    loses_nan = any(map(holds_nan, read)) and _loses_nan(model, feeds, first, right[first])
    if loses_nan and computes is not None:
        instead = nan_guard(graph, node, right, computes)
    return dataclasses.replace(
        found, beyond=_beyond_int32(graph, first, right), instead=instead, loses_nan=loses_nan
    )


def _loses_nan(model: ExposedModel, feeds: Values, name: str, right: np.ndarray) -> bool:
    own = model.run(feeds, [name], {}).get(name)
    return own is not None and (right.dtype.kind in "iu" or nan_is_lost(own, right))


def compare_exposed(
    model: ExposedModel, feeds: Values, expected: Values, outputs: tuple[str, ...], names: list[str]
) -> BuiltDifference | None:
    """Return why a built model's outputs differ from the expected ones; None if they do not.

    `expected` also has the intermediate values of the `names`, which are in the order in which they
    are computed. Raises RunFailedError, ModelRefusedError.
    """
    search = _Search(model, feeds, expected, outputs)
    before = search.error((), {})
    if before <= _SAME:
        return None
    limit = max(before * _REMAINS, _SAME) if math.isfinite(before) else _SAME
    hidden = [name for name in names if name not in outputs]
    if search.error(hidden, {}) <= limit:
        names_needed = search.fewest(hidden, limit)
        return BuiltDifference("fused", names_needed, before, search.error(names_needed, {}))
    put = search.wrong(names)
    after = search.error((), put)
    if not (put and after <= limit):
        return BuiltDifference("unplaced", tuple(put), before, after)
    return BuiltDifference("computed", tuple(put), before, after)


def _expected(
    graph: Graph, names: Sequence[str], feeds: Values, original: Values | None
) -> dict[str, np.ndarray]:
    """Return the right values of a graph: onnxruntime's, or float64's if only those give the
    original's outputs. Raises PieceFailedError.
    """
    found = graph.run(names, feeds)
    if original is None or largest_error(original, found) <= _SAME:
        return found
    try:
        exact = run_in_float64(graph, list(dict.fromkeys(names)), feeds)
    except PieceFailedError:
        return found
    if not largest_error(original, exact) <= _SAME:
        return found
    return {
        name: values.astype(found[name].dtype) if name in found else values
        for name, values in exact.items()
    }


def _beyond_int32(graph: Graph, name: str, values: Values) -> int | None:
    """Return the largest whole number beyond int32 among a node's results and what it reads."""
    node = graph.nodes[graph.producers[name]]
    read = [values.get(each, graph.constants.get(each)) for each in reads(node)]
    wide = [
        array for array in (values[name], *read) if array is not None and array.dtype == np.int64
    ]
    beyond = [
        int(array.flat[place])
        for array in wide
        if array.size
        for place in (array.argmin(), array.argmax())
        if not _INT32.min <= array.flat[place] <= _INT32.max
    ]
    return max(beyond, key=abs, default=None)


@dataclasses.dataclass(frozen=True)
class _Search:
    model: ExposedModel
    feeds: Values
    expected: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]

    def error(self, exposed: Sequence[str], put: Values) -> float:
        """Return the largest error of the outputs."""
        found = self.model.run(self.feeds, exposed, put)
        return max(
            relative_error(found[name], self.expected[name]) if name in found else math.inf
            for name in self.outputs
        )

    def fewest(self, names: Sequence[str], limit: float) -> tuple[str, ...]:
        """Return the part of the names that has to be exposed, halved for as long as that does."""
        while len(names) > 1:
            middle = len(names) // 2
            halves = (names[:middle], names[middle:])
            enough = next((each for each in halves if self.error(each, {}) <= limit), None)
            if enough is None:
                break
            names = enough
        return tuple(names)

    def wrong(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the correct values of the tensors that are wrong by themselves: the first that
        differs, then the first that differs with that one corrected, and so on.
        """
        put: dict[str, np.ndarray] = {}
        for _ in range(_MOST_PLACES):
            found = self.model.run(self.feeds, [name for name in names if name not in put], put)
            first = next(
                (
                    name
                    for name in names
                    if name not in put
                    and name in found
                    and self.expected[name].dtype.kind in "fiub"
                    and not relative_error(found[name], self.expected[name]) <= _SAME
                ),
                None,
            )
            if first is None:
                break
            put[first] = self.expected[first]
        return put

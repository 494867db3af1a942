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
from convkit.worker.cause.place.built_difference import BuiltDifference
from convkit.worker.cause.place.built_forms import REMAINS, remaining, with_working_forms
from convkit.worker.cause.place.equal_forms import many_added
from convkit.worker.cause.place.lost_nan import Computes, holds_nan, nan_guard, nan_is_lost
from convkit.worker.cause.place.other_wording import other_wording

# In parts of a tensor's rms. Kernels of any kind agree to a few digits less than float32 has.
_SAME = 1e-4
_MOST_PLACES = 8
# Values that are looked at upstream of a first difference, and how many roundings kernels may
# differ by.
_MOST_STEPS, _ROUNDINGS = 12, 4
_NO_INFINITY = "without infinity: it returns float32's largest number in its place"
_IN_SINGLE = "in float32, which keeps 24 of float64's 53 bits"
# How far float32 is off for whole numbers, in parts of them: a few additions' roundings.
_FLOAT32 = 2.0**-20
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


def compare_built(
    graph: Graph,
    model: ExposedModel,
    feeds: Values,
    original: Values | None = None,
    computes: Computes | None = None,
) -> BuiltDifference | None:
    """Return why a built model's outputs differ from its graph's; None if they do not, or if the
    graph itself cannot be run. If the `original` outputs are given, a graph that onnxruntime
    computes wrong and float64 right is compared with float64, and a difference of a few roundings
    is explained too, if the graph is much nearer to the original. Whole numbers and truth values
    are compared as floats are; what is computed from sizes alone is not. `computes` runs a model in
    the same runtime.
    """
    known = set(model.tensors())
    moving = moving_nodes(graph, feeds)
    names = [
        name for node in graph.nodes if id(node) in moving for name in node.output if name in known
    ]
    try:
        expected, off, by_runtime = _expected(graph, model, names, feeds, original)
    except PieceFailedError:
        return None
    outputs = {name: expected[name] for name in graph.outputs}
    before = largest_error(outputs, model.run(feeds, [], {}))
    nearer = original is not None and off <= REMAINS * before
    same = max(REMAINS * before, _few_roundings(outputs)) if nearer else _SAME
    same = min(same, _SAME)
    found = compare_exposed(model, feeds, expected, tuple(graph.outputs), names, same)
    found = found or _lost_infinity(model, feeds, expected, names, graph.outputs)
    if found is not None and original is not None and by_runtime:
        right_there = off <= REMAINS * found.before and off <= _SAME
        found = dataclasses.replace(found, elsewhere=off if right_there else None)
    if found is None or found.kind not in ("computed", "unplaced") or not found.names:
        return found
    right = {**expected, **feeds}
    search = _Search(model, feeds, expected, tuple(graph.outputs), same)
    found = _from_its_beginning(search, graph, found, set(names))
    first = found.names[0]
    node = graph.nodes[graph.producers[first]]
    read = {name: right[name] for name in node.input if name in right}
    put = {name: each for name, each in read.items() if name in known and name not in feeds}
    alone = model.run(feeds, [first], put).get(first)
    looks_right = alone is not None and relative_error(alone, right[first]) <= _SAME
    if computes is not None:
        found = with_working_forms(
            found, graph, right, feeds, computes, same=same, looks_right=looks_right
        )
    found = dataclasses.replace(
        found,
        beyond=_beyond_int32(graph, first, right),
        width=_width(alone, right[first], list(read.values())),
        added=None if found.repaired is None else many_added(node, right),
    )
    if found.kind == "unplaced":
        narrow = found.beyond is not None or (found.width and right[first].dtype == np.float64)
        return dataclasses.replace(found, kind="wide", names=(first,)) if narrow else found
    given = next(iter(read.values()), None)
    loses_nan = any(map(holds_nan, read.values())) and _loses_nan(alone, right[first])
    instead = other_wording(node, given, right[first]) or found.instead
    if loses_nan:
        guard = nan_guard(graph, node, right, computes) if computes is not None else None
        return dataclasses.replace(found, instead=guard, repaired=None, loses_nan=True)
    return dataclasses.replace(found, instead=instead)


def _lost_infinity(
    model: ExposedModel,
    feeds: Values,
    expected: Values,
    names: Sequence[str],
    outputs: Sequence[str],
) -> BuiltDifference | None:
    """Return the first value that is finite where it should be infinite, if an output is one: in
    masks, the largest number is as good as infinity, and in results it is not.
    """
    own = model.run(feeds, names, {})
    lost = [name for name in names if name in own and _is_finite_instead(own[name], expected[name])]
    if not any(name in own and _is_finite_instead(own[name], expected[name]) for name in outputs):
        return None
    return BuiltDifference("wide", tuple(lost or outputs)[:1], math.inf, 0.0, width=_NO_INFINITY)


def _is_finite_instead(own: np.ndarray, right: np.ndarray) -> bool:
    if right.dtype.kind != "f" or own.shape != right.shape:
        return False
    return bool((np.isinf(right) & np.isfinite(own)).any())


def _few_roundings(outputs: Values) -> float:
    """Return what right kernels of the outputs' own types may differ by, in parts of their rms."""
    eps = [np.finfo(each.dtype).eps for each in outputs.values() if each.dtype.kind == "f"]
    return _ROUNDINGS * float(min(eps, default=0.0))


def _from_its_beginning(
    search: "_Search", graph: Graph, found: BuiltDifference, known: Collection[str]
) -> BuiltDifference:
    """Return a difference that begins further up, if its first place is right with the right values
    of what it reads: they look right, and are not. The place is then the value that is wrong even
    with the right values of what it is computed from, and that alone puts the outputs right.
    """
    current, moved = found.names[0], False
    for _ in range(_MOST_STEPS):
        node = graph.nodes[graph.producers[current]]
        read = [name for name in dict.fromkeys(node.input) if name in known]
        if not read or not _explains(search, found, read):
            break
        alone = next((name for name in read if _explains(search, found, [name])), None)
        if alone is None:
            break
        current, moved = alone, True
    if not moved:
        return found
    return dataclasses.replace(
        found,
        kind="computed",
        names=(current,),
        after=search.error((), {current: search.expected[current]}),
    )


def _explains(search: "_Search", found: BuiltDifference, names: Sequence[str]) -> bool:
    """Return whether the right values of some tensors put the outputs right."""
    after = search.error((), {name: search.expected[name] for name in names})
    return after <= remaining(found.before, search.same)


def _width(own: np.ndarray | None, right: np.ndarray, read: Sequence[np.ndarray]) -> str | None:
    """Say in which width a kernel computes numbers, from what it returns."""
    if own is None or own.shape != right.shape:
        return None
    if right.dtype.kind not in "iuf" or (right.dtype.kind == "f" and right.dtype != np.float64):
        return None
    numbers = [np.abs(each.astype(np.float64)).max(initial=0) for each in (*read, right)]
    largest = max(numbers)
    with np.errstate(invalid="ignore"):
        away = np.abs(own.astype(np.float64) - right.astype(np.float64))
    if right.dtype == np.float64:
        # What is left of two large numbers may be one that float32 holds.
        rounded = not all(map(_is_single, read)) and bool((away <= _FLOAT32 * largest).all())
        return _IN_SINGLE if _is_single(own) and (rounded or not _is_single(right)) else None
    off = own != right
    ends = np.iinfo(right.dtype)
    if bool(np.isin(own[off], (ends.min, ends.max)).all()):
        return f"without wrapping around: beyond {ends.min} to {ends.max}, it returns that limit"
    if 2**24 < largest <= _INT32.max and bool((away[off] <= _FLOAT32 * largest).all()):
        return "in float32, which holds no whole numbers beyond 2**24 exactly"
    return None


def _is_single(values: np.ndarray) -> bool:
    """Say whether float32 holds numbers exactly."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    return bool((rounded == values)[np.isfinite(values)].all())


def _loses_nan(own: np.ndarray | None, right: np.ndarray) -> bool:
    return own is not None and (right.dtype.kind in "iu" or nan_is_lost(own, right))


def compare_exposed(
    model: ExposedModel,
    feeds: Values,
    expected: Values,
    outputs: tuple[str, ...],
    names: list[str],
    same: float = _SAME,
) -> BuiltDifference | None:
    """Return why a built model's outputs differ from the expected ones by more than `same`, in
    parts of their rms; None if they do not.

    `expected` also has the intermediate values of the `names`, which are in the order in which they
    are computed. Raises RunFailedError, ModelRefusedError.
    """
    search = _Search(model, feeds, expected, outputs, same)
    before = search.error((), {})
    if before <= same:
        return None
    limit = remaining(before, same)
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
    graph: Graph, model: ExposedModel, names: Sequence[str], feeds: Values, original: Values | None
) -> tuple[dict[str, np.ndarray], float, bool]:
    """Return the right values of a graph, how far its outputs are then off from the original's, and
    whether onnxruntime computed them. Otherwise, float64 did: if only that gives the original's
    outputs, if it is much nearer to them than the built model, or if onnxruntime does not run the
    graph. Raises PieceFailedError.
    """
    wanted = list(dict.fromkeys([*names, *graph.outputs]))
    try:
        found = graph.run(wanted, feeds)
    except PieceFailedError:
        if original is None:
            raise
        found, off = {}, math.inf
    else:
        off = 0.0 if original is None else largest_error(original, found)
    if original is None:
        return found, off, True
    if off <= min(_SAME, REMAINS * largest_error(original, model.run(feeds, [], {}))):
        return found, off, True
    try:
        exact = run_in_float64(graph, wanted, feeds)
    except PieceFailedError:
        if not found:
            raise
        return found, off, True
    exact_off = largest_error(original, exact)
    if found and not exact_off <= min(_SAME, off):
        return found, off, True
    typed = found or model.run(feeds, names, {})
    right = {n: each.astype(typed[n].dtype) if n in typed else each for n, each in exact.items()}
    return right, exact_off, False


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
    same: float

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
                    and not relative_error(found[name], self.expected[name]) <= self.same
                ),
                None,
            )
            if first is None:
                break
            put[first] = self.expected[first]
        return put

"""Finds where a runtime diverges from what it was built from: compares its tensors with those of
the exported graph, which onnxruntime computes without optimizations, with those of float64 where
onnxruntime itself is off, or with those of any other record.

For graphs that agree with the original: the difference is then the runtime's own.
"""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx

from convkit.worker.cause.graphs.float64_graph import moving_nodes, run_in_float64
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values, label, reads
from convkit.worker.cause.matching.relative_difference import largest_error, relative_error
from convkit.worker.cause.place.equal_forms import with_forms, working_form
from convkit.worker.cause.place.lost_nan import Computes, holds_nan, nan_guard, nan_is_lost
from convkit.worker.cause.place.other_wording import other_wording
from convkit.worker.cause.place.whole_number_forms import Form, remainders_first

# In parts of a tensor's rms. Kernels of any kind agree to a few digits less than float32 has.
_SAME = 1e-4
# The fraction of the outputs' error that may remain after an explanation.
_REMAINS = 0.1
_MOST_PLACES = 8
# Nodes that are written in other forms at once; a runtime compiles each by itself.
_MOST_FORMS = 40
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


@dataclasses.dataclass(frozen=True)
class BuiltDifference:
    """Why a built model differs from its graph. Errors are the outputs', relative to their RMS.

    fused: the outputs are correct once `names` are exposed, which prevents the runtime from fusing
    their producers with later nodes. computed: these tensors are wrong although their inputs are
    correct, and the correct values fix the outputs. wide: more tensors are wrong than were
    corrected, and the first has a whole number that int32 cannot hold or is computed from one.
    unplaced: none of these. `beyond` is that number, also of what was computed.
    `instead` is code that computes that tensor right, tried on the case's values: the outputs are
    then off by `repaired`, if it was tried in the whole graph, in `places` nodes. `loses_nan`: it
    is wrong where an input is NaN. `width` says in which width a kernel computes whole numbers.
    """

    kind: str
    names: tuple[str, ...]
    before: float
    after: float
    beyond: int | None = None
    instead: str | None = None
    loses_nan: bool = False
    repaired: float | None = None
    places: int = 1
    width: str | None = None


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
    right = {**expected, **feeds}
    if computes is not None:
        found = _with_forms(found, graph, right, feeds, computes)
    first = found.names[0]
    node = graph.nodes[graph.producers[first]]
    beyond = _beyond_int32(graph, first, right)
    own = model.run(feeds, [first], {}).get(first)
    width = _width(own, right[first], [right[each] for each in node.input if each in right])
    found = dataclasses.replace(found, beyond=beyond, width=width)
    if found.kind == "unplaced":
        return found if beyond is None else dataclasses.replace(found, kind="wide", names=(first,))
    read = [right[name] for name in node.input if name in right]
    loses_nan = any(map(holds_nan, read)) and _loses_nan(own, right[first])
    instead = other_wording(node, read[0] if read else None, right[first]) or found.instead
    if loses_nan:
        guard = nan_guard(graph, node, right, computes) if computes is not None else None
        return dataclasses.replace(found, instead=guard, repaired=None, loses_nan=True)
    return dataclasses.replace(found, instead=instead)


def _with_forms(
    found: BuiltDifference, graph: Graph, right: Values, feeds: Values, computes: Computes
) -> BuiltDifference:
    """Return the difference with other forms of its nodes, if the runtime computes each of them
    right by itself, and the whole graph with all nodes of these kinds written like that.
    """
    forms = remainders_first(graph, found.names[0], right)
    if forms and (better := _whole(found, graph, forms, right, feeds, computes)) is not None:
        return better
    wrong = {_kind(graph.nodes[graph.producers[name]], right) for name in found.names}
    alike = [
        each
        for each in graph.nodes
        if each.output and each.output[0] in right and _kind(each, right) in wrong
    ]
    if not 0 < len(alike) <= _MOST_FORMS:
        return found
    forms = {}

    def is_right(name: str, changed: Graph) -> bool:
        given = {key: values for key, values in right.items() if key != name}
        made = _computed(changed, [name], given, computes)
        return made is not None and largest_error({name: right[name]}, made) <= _SAME

    for node in alike:
        name = node.output[0]
        form = working_form(graph, node, right, functools.partial(is_right, name))
        if form is not None:
            forms[name] = form
    if not forms:
        return found
    return _whole(found, graph, forms, right, feeds, computes) or found


def _whole(
    found: BuiltDifference,
    graph: Graph,
    forms: Mapping[str, Form],
    right: Values,
    feeds: Values,
    computes: Computes,
) -> BuiltDifference | None:
    """Return the difference with forms that make the whole graph right; None if they do not."""
    outputs = {name: right[name] for name in graph.outputs}
    made = _computed(with_forms(graph, forms), graph.outputs, feeds, computes)
    after = math.inf if made is None else largest_error(outputs, made)
    if not after <= max(_REMAINS * found.before, _SAME):
        return None
    chosen = [name for name in found.names if name in forms] or list(forms)[:1]
    nodes = {name: graph.nodes[graph.producers[name]] for name in chosen}
    texts = {forms[name].text: f" ({nodes[name].op_type} {label(nodes[name])})" for name in chosen}
    instead = "; ".join(text + (where if len(texts) > 1 else "") for text, where in texts.items())
    wide = found.kind == "unplaced"
    return dataclasses.replace(
        found,
        kind="computed" if wide else found.kind,
        after=after if wide else found.after,
        instead=instead,
        repaired=after,
        places=len(forms),
    )


def _kind(node: onnx.NodeProto, values: Values) -> tuple[str, str]:
    return node.op_type, str(values[node.output[0]].dtype)


def _computed(
    graph: Graph, names: Sequence[str], given: Values, computes: Computes
) -> Mapping[str, np.ndarray] | None:
    """Return what a runtime computes; None if it does not, with an exception of its own."""
    try:
        return computes(*graph.piece(names, given))
    except Exception:  # noqa: BLE001 - a runtime that refuses the form has its own exceptions
        return None


def _width(own: np.ndarray | None, right: np.ndarray, read: Sequence[np.ndarray]) -> str | None:
    """Say in which width a kernel computes whole numbers, from what it returns."""
    if own is None or right.dtype.kind not in "iu" or own.shape != right.shape:
        return None
    off = own != right
    ends = np.iinfo(right.dtype)
    if bool(np.isin(own[off], (ends.min, ends.max)).all()):
        return f"without wrapping around: beyond {ends.min} to {ends.max}, it returns that limit"
    away = np.abs(own[off].astype(np.float64) - right[off].astype(np.float64))
    numbers = [np.abs(each.astype(np.float64)).max(initial=0) for each in (*read, right)]
    largest = max(numbers)
    if 2**24 < largest <= _INT32.max and bool((away <= _FLOAT32 * largest).all()):
        return "in float32, which holds no whole numbers beyond 2**24 exactly"
    return None


def _loses_nan(own: np.ndarray | None, right: np.ndarray) -> bool:
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

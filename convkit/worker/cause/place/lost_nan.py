"""Kernels that lose NaN: nodes that return numbers where an input is NaN, and the original returns
NaN, as numpy does. Tried on the case's values, with code that helps.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from convkit.worker.cause.graphs.float64_graph import moving_nodes, run_in_float64
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    label,
    module_of,
    source_of,
    with_names,
)
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import REMAINS
from convkit.worker.cause.search_types.graph_edits import pinned
from convkit.worker.cause.search_types.search_results import Cause

# Runs a model with one output in the runtime in question; returns its outputs.
Computes = Callable[[onnx.ModelProto, dict[str, np.ndarray]], Mapping[str, np.ndarray]]
# Operations whose result is NaN where any number that it is computed from is.
_ALONG_AXES = ("ReduceMax", "ReduceMin", "ReduceLogSumExp", "Softmax", "LogSoftmax")
_PLACES = ("ArgMax", "ArgMin")
_WINDOWS = ("MaxPool",)
_EACH = ("Max", "Min", "Clip", "Relu", "Sign", "Exp", "HardSigmoid", "PRelu", "LeakyRelu")
# Nodes that are tried, and what a kernel may round a right value by, in parts of the values' rms.
_MOST, _SAME = 60, 1e-4
# The opset from which ReduceMax reads its axes.
_AXES_READ = 18


def lost_nan(
    graph: Graph, feeds: Values, before: float, error: Callable[[Graph], float], release: str
) -> tuple[Cause, ...]:
    """Return the kernels that lose NaN, if what numpy computes in their place puts the outputs
    right: their error, now `before`, is what `error` returns of a graph.
    """
    if not any(holds_nan(values) for values in feeds.values()):
        return ()
    causes, corrected, after = list[Cause](), graph, before
    moving = moving_nodes(graph, feeds)
    nodes = [node for node in graph.nodes if id(node) in moving][:_MOST]
    for node in nodes:
        found = _lost(corrected, node, feeds)
        if found is None:
            continue
        own, exact = found
        helps = guarded(graph, node)
        corrected = pinned(corrected, node.output[0], exact)
        after = error(corrected)
        # As NaN is lost further on again, the code is tried at its own place.
        name = node.output[0]
        instead = helps[1] if helps is not None and _agrees(helps[0], name, feeds, exact) else None
        causes.append(_cause(node, own, exact, before, release, instead))
        if after <= REMAINS * before:
            return tuple(dataclasses.replace(each, after=after) for each in causes)
    return ()


def holds_nan(values: np.ndarray) -> bool:
    """Say whether a tensor has NaN."""
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def nan_guard(graph: Graph, node: onnx.NodeProto, right: Values, computes: Computes) -> str | None:
    """Return code that puts NaN back behind a node, if it computes the `right` value from the right
    ones where `computes` runs it; else None.
    """
    name = node.output[0]
    made = guarded(graph, node)
    if made is None:
        return None
    model, fed = made[0].piece([name], {key: right[key] for key in right if key != name})
    try:
        found = computes(model, fed)
    except Exception:  # noqa: BLE001 - a runtime that refuses the code has its own exceptions
        return None
    return made[1] if relative_error(next(iter(found.values())), right[name]) <= _SAME else None


def nan_is_lost(found: np.ndarray, expected: np.ndarray) -> bool:
    """Say whether what differs is that NaN is not where it is expected."""
    if found.shape != expected.shape or expected.dtype.kind != "f" or found.dtype.kind != "f":
        return False
    return bool((np.isnan(expected) & ~np.isnan(found)).any())


def guarded(graph: Graph, node: onnx.NodeProto) -> tuple[Graph, str] | None:
    """Return the graph with NaN put back behind a node, and the same as torch's code: `x` is the
    operation's input, `y` its result. None for operations without such a guard.
    """
    name = node.output[0]
    own = f"{name}//kernel"
    made = _guard(graph, node, own, name)
    if made is None:
        return None
    nodes, code = made
    kernel = with_names(node, {name: own})
    at = next(index for index, each in enumerate(graph.nodes) if each is node)
    constants = {
        f"{name}//nan": np.array(np.nan, np.float32),
        f"{name}//0": np.array(0, np.float32),
        f"{name}//most//axes": np.array([_axis(node)]),
    }
    around = (*graph.nodes[:at], kernel, *nodes, *graph.nodes[at + 1 :])
    return graph.with_nodes(around, constants), code


def _guard(
    graph: Graph, node: onnx.NodeProto, own: str, name: str
) -> tuple[list[onnx.NodeProto], str] | None:
    make = onnx.helper.make_node
    is_nan, number, most, any_nan = (f"{name}//{each}" for each in ("is", "number", "most", "any"))
    if node.op_type in _EACH:
        read = [each for each in node.input if each and each not in graph.constants]
        nodes, last = [], own
        for count, each in enumerate(read):
            out = name if count + 1 == len(read) else f"{name}//{count}"
            nodes += [
                make("IsNaN", [each], [f"{is_nan}{count}"]),
                make("Where", [f"{is_nan}{count}", each, last], [out]),
            ]
            last = out
        code = "y = torch.where(torch.isnan(x), x, y)"
        return (nodes, code + (" for each operand x" if read[1:] else "")) if read else None
    if node.op_type not in (*_ALONG_AXES, *_PLACES, *_WINDOWS):
        return None
    begin = [
        make("IsNaN", [node.input[0]], [is_nan]),
        make("Cast", [is_nan], [number], to=onnx.TensorProto.FLOAT),
    ]
    if node.op_type in _WINDOWS:
        if len(node.output) > 1:
            return None
        rest = [
            _like(node, "MaxPool", [number], most),
            make("Greater", [most, f"{name}//0"], [any_nan]),
            make("Where", [any_nan, f"{name}//nan", own], [name]),
        ]
        text = "the same pooling of torch.isnan(x).float()"
        return [*begin, *rest], f"y = y.masked_fill(({text}) > 0, float('nan'))"
    if node.op_type in _PLACES:
        places = f"{name}//places"
        rest = [
            _like(node, "ArgMax", [number], places),
            _along(graph, node, number, most, keepdims=False),
            make("Greater", [most, f"{name}//0"], [any_nan]),
            make("Where", [any_nan, places, own], [name]),
        ]
        code = "n = torch.isnan(x); y = torch.where(n.any(dim), n.float().argmax(dim), y)"
        return [*begin, *rest], code
    kept = node.op_type.endswith("Softmax")
    rest = [
        _along(graph, node, number, most, keepdims=True)
        if kept
        else _like(node, "ReduceMax", [number, *node.input[1:]], most),
        make("Greater", [most, f"{name}//0"], [any_nan]),
        make("Where", [any_nan, f"{name}//nan", own], [name]),
    ]
    mask = f"torch.isnan(x).any(dim{', keepdim=True' if kept else ''})"
    return [*begin, *rest], f"y = y.masked_fill({mask}, float('nan'))"


def _like(node: onnx.NodeProto, kind: str, read: list[str], out: str) -> onnx.NodeProto:
    """Return a node with the attributes of another."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.name, made.op_type = f"{out}//node", kind
    del made.input[:], made.output[:]
    made.input.extend(read)
    made.output.append(out)
    return made


def _along(
    graph: Graph, node: onnx.NodeProto, given: str, out: str, *, keepdims: bool
) -> onnx.NodeProto:
    """Return the maximum along a node's attribute `axis`, which opset 18 takes as an input."""
    kept = int(keepdims or _number(node, "keepdims", 1))
    axes = {} if dict(graph.opsets).get("", 0) >= _AXES_READ else {"axes": [_axis(node)]}
    read = [given] if axes else [given, f"{out}//axes"]
    return onnx.helper.make_node("ReduceMax", read, [out], keepdims=kept, **axes)


def _axis(node: onnx.NodeProto) -> int:
    return _number(node, "axis", -1 if node.op_type.endswith("Softmax") else 0)


def _number(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((each.i for each in node.attribute if each.name == name), default)


def _lost(
    graph: Graph, node: onnx.NodeProto, feeds: Values
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a node's own result and numpy's, where NaN among its inputs makes them differ."""
    name = node.output[0]
    read = [each for each in node.input if each and each not in graph.constants]
    try:
        given = graph.run(read, feeds)
        if not any(map(holds_nan, given.values())):
            return None
        known = {**feeds, **given}
        own = graph.run([name], {key: known[key] for key in known if key != name})[name]
        exact = _with_nan(graph, node, known)
    except (PieceFailedError, KeyError):
        return None
    exact = exact.astype(own.dtype)
    is_place = own.dtype.kind in "iu"
    if is_place and not np.array_equal(own, exact):
        return own, exact
    if nan_is_lost(own, exact) or (_reorders(node) and not relative_error(own, exact) <= _SAME):
        return own, exact
    return None


def _with_nan(graph: Graph, node: onnx.NodeProto, known: Values) -> np.ndarray:
    """Return a node's result with NaN passed on, as numpy does; onnx's evaluator loses it in
    windows. Raises PieceFailedError.
    """
    name = node.output[0]
    made = guarded(graph, node) if node.op_type in _WINDOWS else None
    if made is None:
        return run_in_float64(graph, [name], known)[name]
    return made[0].run([name], {key: known[key] for key in known if key != name})[name]


def _reorders(node: onnx.NodeProto) -> bool:
    return node.op_type == "TopK"


def _agrees(graph: Graph, name: str, feeds: Values, exact: np.ndarray) -> bool:
    try:
        found = graph.run([name], feeds)[name]
    except PieceFailedError:
        return False
    return relative_error(found, exact) <= _SAME


def _cause(
    node: onnx.NodeProto,
    own: np.ndarray,
    exact: np.ndarray,
    before: float,
    release: str,
    instead: str | None,
) -> Cause:
    what = "numbers" if own.dtype.kind == "f" else "other places"
    text = (
        f"{release} loses NaN in {node.op_type} {label(node)}: it returns {what} where an input is"
        " NaN, and the graph is right, which passes NaN on as the original does"
    )
    return Cause(
        "place",
        text,
        node=label(node),
        tensor=node.output[0],
        module=module_of(node),
        source=source_of(node),
        error=relative_error(own, exact),
        before=before,
        of_kernels=True,
        instead=instead,
    )

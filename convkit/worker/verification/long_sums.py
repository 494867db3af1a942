"""Sums of so many float32 values that a runtime's kernel loses digits: the graph is right, and a
sum in two steps or in float64 agrees with the original.
"""

from collections.abc import Mapping

import numpy as np
import onnx

from convkit.protocol.findings.finding import Finding, Place
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    label,
    module_of,
    source_of,
)
from convkit.worker.cause.place.equal_forms import AXES_READ_FROM, forms_of, many_added, with_forms
from convkit.worker.cause.place.kernel_faults import release
from convkit.worker.cause.place.whole_number_forms import Form, reduced_axes
from convkit.worker.cause.wording.cause_findings import instead_of

# What another form may leave of the error to be what explains it.
_REMAINS = 0.1


def long_sum_findings(
    graph: Graph, feeds: Values, expected: Values, computed: Values, case: str
) -> list[Finding]:
    """Return N408 for each sum of many values whose rounding explains how far the graph's outputs
    are off in a case: its kernel is further from the sum in float64 than another form of it, with
    which they agree with the `expected`. Empty if something else does, or there is no such sum.
    """
    nodes = [node for node in graph.nodes if node.op_type in AXES_READ_FROM and node.domain == ""]
    names = [name for node in nodes for name in (node.input[0], node.output[0])]
    before = _largest(expected, computed)
    if not nodes or not before > 0:
        return []
    try:
        values = {**feeds, **graph.run(list(dict.fromkeys(names)), feeds)}
        nodes = [node for node in nodes if many_added(node, values) is not None]
        for which in range(_most_forms(graph, nodes, values)):
            forms = {node.output[0]: _forms(graph, node, values)[which] for node in nodes}
            made = with_forms(graph, forms)
            after = _largest(expected, made.run(list(expected), feeds))
            if after <= _REMAINS * before:
                other = made.run(list(forms), feeds)
                found = (
                    _finding(
                        graph, node, forms[node.output[0]], values, other, (before, after), case
                    )
                    for node in nodes
                )
                return [each for each in found if each is not None]
    except PieceFailedError:
        pass
    return []


def _forms(graph: Graph, node: onnx.NodeProto, values: Values) -> list[Form]:
    return list(forms_of(graph, node, values))


def _most_forms(graph: Graph, nodes: list[onnx.NodeProto], values: Values) -> int:
    return min((len(_forms(graph, node, values)) for node in nodes), default=0)


def _largest(expected: Values, found: Values) -> float:
    """Return the largest difference of float outputs, in parts of the output's largest value; NaN
    if an output has another shape.
    """
    if any(found[name].shape != right.shape for name, right in expected.items()):
        return float("nan")
    largest = 0.0
    for name, right in expected.items():
        if right.dtype.kind == "f" and right.size:
            off = np.abs(found[name].astype(np.float64) - right.astype(np.float64)).max()
            largest = max(largest, float(off / max(np.abs(right).max(), 1e-30)))
    return largest


def _finding(
    graph: Graph,
    node: onnx.NodeProto,
    form: Form,
    values: Values,
    other: Mapping[str, np.ndarray],
    errors: tuple[float, float],
    case: str,
) -> Finding | None:
    """Return the finding of a sum that the form computes nearer to float64 than the kernel."""
    name = node.output[0]
    found, count = values[name], many_added(node, values)
    exact = _in_float64(graph, node, values)
    off = np.abs(found - exact)
    worst = np.unravel_index(int(np.argmax(off)), off.shape)
    if not np.abs(other[name] - exact)[worst] <= _REMAINS * off[worst]:
        return None
    text = (
        f"{release()}'s kernel is off in {node.op_type} {label(node)}, and the graph is right: of"
        f" {count} float32 values, rounding at each addition adds up. It gives {found[worst]:.9g};"
        f" in float64 it is {exact[worst]:.9g}, and {other[name][worst]:.9g} with the line written"
        f" otherwise, which takes the outputs' error from {errors[0]:.2g} to {errors[1]:.2g} of"
        " their largest value"
    )
    place = Place(name, label(node), module_of(node) or None, source_of(node), case)
    evidence = {"owner": "kernel", "before": errors[0], "after": errors[1], "instead": form.text}
    return Finding("N408", text, place, evidence, instead_of(form.text))


def _in_float64(graph: Graph, node: onnx.NodeProto, values: Values) -> np.ndarray:
    """Return a sum or mean in float64."""
    known = {**graph.constants, **values}
    found = reduced_axes(graph, node, known, AXES_READ_FROM[node.op_type])
    assert found is not None  # it adds up more than one value
    axes, keeps = found
    reduce = np.sum if node.op_type == "ReduceSum" else np.mean
    taken = values[node.input[0]].astype(np.float64)
    return np.asarray(reduce(taken, axis=tuple(axes), keepdims=keeps))

"""The scaling that follows an integer product: a cast to float, then the scales."""

import dataclasses

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What follows an integer product: its weight's `constant` scale, the name of the activation's
    `computed` scale, the final `result`, and the values that are `replaced`, it included.
    """

    constant: np.ndarray
    computed: str
    result: str
    replaced: frozenset[str]


def scaling_after(graph: Graph, value: str) -> Scaling | None:
    """Return the scaling after an integer product, if it is one: Cast, then Mul with a product of
    a constant and a computed scale, in either order or one after the other.
    """
    cast = _only_reader(graph, value, "Cast")
    if cast is None:
        return None
    value = cast.output[0]
    replaced = {value}
    constant: np.ndarray | None = None
    computed = ""
    while (node := _only_reader(graph, value, "Mul")) is not None:
        for factor in (each for each in node.input if each != value):
            for name in _factors(graph, factor):
                if name not in graph.constants:
                    if computed:
                        return None
                    computed = name
                elif constant is None:
                    constant = graph.constants[name]
                else:
                    return None
        value = node.output[0]
        replaced.add(value)
        if constant is not None and computed:
            return Scaling(constant, computed, value, frozenset(replaced))
    return None


def _factors(graph: Graph, value: str) -> list[str]:
    """Return a product's two factors, or the value itself."""
    index = graph.producers.get(value)
    if index is None or graph.nodes[index].op_type != "Mul":
        return [value]
    return list(graph.nodes[index].input)


def _only_reader(graph: Graph, value: str, operator: str) -> onnx.NodeProto | None:
    readers = graph.readers.get(value, [])
    if len(readers) != 1 or value in graph.outputs:
        return None
    node = graph.nodes[readers[0]]
    return node if node.op_type == operator and value in node.input else None

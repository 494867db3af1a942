"""Biases that a graph lacks where a node could read one: found by the weight beside them."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, label
from convkit.worker.cause.search_types.graph_edits import copied, replaced
from convkit.worker.cause.weights.fused_weights import derived_tensors
from convkit.worker.cause.weights.traced_weights import WeightReport
from convkit.worker.cause.weights.weight_layouts import State

# Operators with an optional bias: the inputs that hold the weight and the bias.
_PLACES = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "LayerNormalization"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 3)),
}


@dataclasses.dataclass(frozen=True)
class AbsentBias:
    """A bias of the original that a node does not read: its name, its values in the graph's layout,
    and the graph in which the node reads it.
    """

    node: onnx.NodeProto
    original: str
    values: np.ndarray
    graph: Graph


def absent_biases(graph: Graph, state: State, report: WeightReport) -> Iterator[AbsentBias]:
    """Yield the biases of layers whose weight a node reads alone, without running anything.

    A bias that the graph holds elsewhere, as in an Add after the node, is not absent.
    """
    sources = {each.weight: each.sources for each in report.matches}
    sources |= {each.weight: each.sources for each in report.differences}
    for index, node in enumerate(graph.nodes):
        weight, bias = _PLACES.get(node.op_type, (0, 0))
        if not bias or weight >= len(node.input) or any(node.input[bias : bias + 1]):
            continue
        found = _bias_beside(state, sources.get(node.input[weight], ()), report.missing)
        if found is None:
            continue
        original, values = found
        if node.op_type == "Gemm" and values.ndim != 1:
            continue
        name = f"{node.output[0] or label(node)}//bias"
        changed = copied(node)
        changed.input.extend([""] * (bias + 1 - len(changed.input)))
        changed.input[bias] = name
        corrected = replaced(graph, index, changed)
        yield AbsentBias(
            node, original, values, corrected.with_nodes(corrected.nodes, {name: values})
        )


def _bias_beside(
    state: State, weights: tuple[str, ...], missing: tuple[str, ...]
) -> tuple[str, np.ndarray] | None:
    """Return the missing bias of the layer that a weight belongs to, as its operator reads it."""
    if not weights:
        return None
    layer, dot, name = weights[0].rpartition(".")
    if name.startswith("weight_ih_l"):
        beside = f"{layer}{dot}{name.replace('weight', 'bias', 1)}"
        hidden = state.get(beside.replace("bias_ih", "bias_hh"))
        if beside not in missing or hidden is None:
            return None
        shapes = {(len(weights), 2 * hidden.shape[0])}
        for each in derived_tensors({k: state[k] for k in state if k.startswith(layer)}, shapes):
            if each.sources[0] == beside:
                return each.original, each.values
        return None
    bias = f"{layer}{dot}bias"
    if name != "weight" or bias not in missing:
        return None
    return bias, state[bias]

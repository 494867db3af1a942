"""A graph as it runs in one case: each If replaced by the nodes of the branch that is taken."""

import dataclasses
from collections.abc import Mapping

import onnx

from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    constants_apart,
    with_names,
)

# Nested branches are opened from the outside in, one after the other.
_MOST = 64


def with_taken_branches(graph: Graph, feeds: Values) -> Graph:
    """Return a graph in which nothing hides inside an If, as far as the conditions can be computed.

    What it computes from `feeds` is unchanged.
    """
    left: set[str] = set()
    for _ in range(_MOST):
        index = next(
            (
                place
                for place, node in enumerate(graph.nodes)
                if node.op_type == "If" and node.domain == "" and node.output[0] not in left
            ),
            None,
        )
        if index is None:
            break
        node = graph.nodes[index]
        try:
            condition = graph.run([node.input[0]], feeds)[node.input[0]]
        except PieceFailedError:
            left.add(node.output[0])
            continue
        side = "then_branch" if bool(condition.item()) else "else_branch"
        (branch,) = (attribute.g for attribute in node.attribute if attribute.name == side)
        graph = _opened(graph, index, branch)
    return graph


def _opened(graph: Graph, index: int, branch: onnx.GraphProto) -> Graph:
    """Return the graph with a branch's nodes in the place of the If."""
    node = graph.nodes[index]
    own = {tensor.name for tensor in branch.initializer}
    own |= {name for inner in branch.node for name in inner.output if name}
    # Values of branches that were opened before may have the same names.
    used = {*graph.producers, *graph.constants, *graph.exotic, *graph.inputs}
    names = {name: f"{node.output[0]}//{name}" for name in own & used}
    renamed = [with_names(inner, names) for inner in branch.node]
    tensors = [_named(tensor, names) for tensor in branch.initializer]
    nodes, constants, exotic = constants_apart(renamed, tensors)
    results = [names.get(value.name, value.name) for value in branch.output]
    made = [
        onnx.helper.make_node("Identity", [result], [output], name=f"{output}//taken")
        for result, output in zip(results, node.output, strict=True)
    ]
    opened = graph.with_nodes(
        [*graph.nodes[:index], *nodes, *made, *graph.nodes[index + 1 :]], constants
    )
    return dataclasses.replace(opened, exotic={**graph.exotic, **exotic})


def _named(tensor: onnx.TensorProto, names: Mapping[str, str]) -> onnx.TensorProto:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = names.get(tensor.name, tensor.name)
    return copy

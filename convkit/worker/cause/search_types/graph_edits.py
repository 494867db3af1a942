"""Changes of a graph, each leaving the original as it is."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.search_types.diverging_region import RegionEdge
from convkit.worker.cause.search_types.search_results import Kind
from convkit.worker.graph.operators.node_builder import NodeBuilder

# Builds a value from another, given by name: a formula of `x`, or what writes nodes.
Build: TypeAlias = str | Callable[[NodeBuilder, str], object]

# Ends the name of a value that a correction replaced: nothing needs it any more.
BEFORE = "//before"
# Ends the name of a value that new nodes compute between a value and one of its readers.
INSERTED = "//inserted"


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """A candidate explanation: the graph with the suspected fault removed.

    `kind` is machine-readable, `node` is the first output of the node concerned, `text` describes
    the fault and the expected state. `fitted` numbers were chosen to make the difference small.
    `combines` values inside the model: no reader of its outputs could make up for it. `added` is a
    value and what was added to it.
    """

    kind: Kind
    node: str
    text: str
    graph: Graph
    constant: str | None = None
    fitted: int = 0
    combines: bool = False
    added: tuple[str, str] | None = None


def copied(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a copy of a node."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def replaced(graph: Graph, index: int, node: onnx.NodeProto) -> Graph:
    """Return the graph with a different node at an index."""
    return graph.with_nodes([*graph.nodes[:index], node, *graph.nodes[index + 1 :]])


def with_attribute(node: onnx.NodeProto, name: str, value: object) -> onnx.NodeProto:
    """Return a copy of a node with an attribute set."""
    copy = copied(node)
    kept = [attribute for attribute in copy.attribute if attribute.name != name]
    del copy.attribute[:]
    copy.attribute.extend([*kept, helper.make_attribute(name, value)])
    return copy


def rewired(graph: Graph, edge: RegionEdge, value: str) -> Graph:
    """Return the graph with one input of a node replaced by another value."""
    index = graph.producers[edge.reader]
    node = copied(graph.nodes[index])
    node.input[edge.place] = value
    return in_order(replaced(graph, index, node))


def inserted(graph: Graph, edge: RegionEdge, build: Build) -> Graph:
    """Return the graph with new nodes inserted between a value and one of its readers."""
    name = f"{edge.value}{INSERTED}"
    built = built_from(edge.value, name, build)
    index = graph.producers[edge.reader]
    node = copied(graph.nodes[index])
    node.input[edge.place] = name
    return graph.with_nodes(
        [*graph.nodes[:index], *built.nodes, node, *graph.nodes[index + 1 :]], built.constants
    )


def appended(graph: Graph, value: str, build: Build) -> Graph:
    """Return the graph in which new nodes change a value for all its readers."""
    return recomputed(graph, value, built_from(value + BEFORE, value, build))


def recomputed(graph: Graph, value: str, built: NodeBuilder) -> Graph:
    """Return the graph in which new nodes compute a value, after the node that did."""
    index = graph.producers[value]
    node = copied(graph.nodes[index])
    for place, name in enumerate(node.output):
        if name == value:
            node.output[place] = value + BEFORE
    return graph.with_nodes(
        [*graph.nodes[:index], node, *built.nodes, *graph.nodes[index + 1 :]], built.constants
    )


def pinned(graph: Graph, name: str, values: np.ndarray) -> Graph:
    """Return the graph with a value fixed instead of computed."""
    return recomputed(graph, name, NodeBuilder(name, constants={name: values}))


def holding(values: np.ndarray) -> Build:
    """Return what reads nothing and holds values, whatever it is put after."""
    return lambda built, _: built.constants.update({built.out: values})


def built_from(given: str, made: str, build: Build) -> NodeBuilder:
    """Return what computes a value from another."""
    builder = NodeBuilder(made)
    if isinstance(build, str):
        builder.compute(build, x=given)
    else:
        build(builder, given)
    return builder


def with_constants(graph: Graph, constants: Mapping[str, np.ndarray]) -> Graph:
    """Return the graph with other constants."""
    return graph.with_nodes(graph.nodes, constants)


def in_order(graph: Graph) -> Graph:
    """Sort nodes topologically; unchanged if there is no such order."""
    from convkit.worker.cause.graphs.runnable_graph import reads

    made = {name for node in graph.nodes for name in node.output}
    done: set[str] = set()
    rest: Sequence[onnx.NodeProto] = graph.nodes
    ordered: list[onnx.NodeProto] = []
    while rest:
        later = []
        for node in rest:
            if all(name in done or name not in made for name in reads(node)):
                ordered.append(node)
                done.update(node.output)
            else:
                later.append(node)
        if len(later) == len(rest):
            return graph
        rest = later
    return graph.with_nodes(ordered)

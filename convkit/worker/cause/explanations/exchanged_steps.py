"""Steps in the wrong order, and values that are swapped wherever they are read."""

import itertools
from collections.abc import Iterator

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, label, reads, renamed_inputs
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import BEFORE, Rewrite, copied, in_order
from convkit.worker.cause.search_types.search_results import Kind

# Names of nodes that a message lists.
_SHOWN = 4


def exchanged_steps(region: Region) -> Iterator[Rewrite]:
    """Compute two steps of a chain in the opposite order: normalize before an activation.

    A step is any number of nodes that one value leads through: from a known value to a value
    within, and from there to the target.
    """
    graph, nodes = region.graph, region.nodes
    inside = {name for index in nodes for name in graph.nodes[index].output if name}
    private = {
        name
        for name in inside - {region.target}
        if name not in graph.outputs and set(graph.readers.get(name, [])) <= set(nodes)
    }
    if private != inside - {region.target}:
        return
    for middle in sorted(private, key=lambda name: graph.producers[name]):
        first = graph.closure([middle], region.feeds)
        second = graph.closure([region.target], {middle, *region.feeds})
        if set(first) & set(second) or len(first) + len(second) != len(nodes):
            continue
        later = _read_by(graph, second)
        if middle not in later:
            continue
        for start in sorted(_read_by(graph, first) & region.feeds.keys() - later):
            exchanged = _opposite(region, start, middle, first, second)
            text = (
                f"the steps are in the wrong order: {_listed(graph, second)} should come before"
                f" {_listed(graph, first)}"
            )
            yield Rewrite("wiring", region.target, text, exchanged)


def _read_by(graph: Graph, indices: list[int]) -> set[str]:
    return {name for index in indices for name in reads(graph.nodes[index])}


def _opposite(
    region: Region, start: str, middle: str, first: list[int], second: list[int]
) -> Graph:
    """Return the graph that leads from `start` through the second nodes, then the first."""
    graph, between = region.graph, f"{middle}{BEFORE}"
    earlier = [_rewired(graph.nodes[i], {middle: start}, {region.target: between}) for i in second]
    later = [_rewired(graph.nodes[i], {start: between}, {middle: region.target}) for i in first]
    moved, last = {*first, *second}, max(second)
    kept = [None if index in moved else node for index, node in enumerate(graph.nodes)]
    before = [node for node in kept[:last] if node is not None]
    after = [node for node in kept[last:] if node is not None]
    return graph.with_nodes([*before, *earlier, *later, *after])


def _rewired(
    node: onnx.NodeProto, inputs: dict[str, str], outputs: dict[str, str]
) -> onnx.NodeProto:
    changed = renamed_inputs(node, inputs)
    for place, name in enumerate(changed.output):
        changed.output[place] = outputs.get(name, name)
    return changed


def _listed(graph: Graph, indices: list[int]) -> str:
    names = [f"{graph.nodes[index].op_type} {label(graph.nodes[index])}" for index in indices]
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def exchanged_values(region: Region) -> Iterator[Rewrite]:
    """Swap two values of one shape for all nodes of the region that read them."""
    graph, nodes = region.graph, region.nodes
    read = dict.fromkeys(name for index in nodes for name in graph.nodes[index].input if name)
    for first, second in itertools.combinations(read, 2):
        if not _comparable(region, first, second):
            continue
        places = [index for index in nodes if {first, second} & set(graph.nodes[index].input)]
        if len(places) < 2:
            continue  # two inputs of one node: `operand_order`
        changed = list(graph.nodes)
        for index in places:
            changed[index] = _exchanged(graph.nodes[index], first, second)
        text = f"{first} and {second} are swapped wherever they are read here"
        kind: Kind = "exchanged" if {first, second} <= graph.constants.keys() else "wiring"
        reader = graph.nodes[places[0]].output[0]
        yield Rewrite(kind, reader, text, in_order(graph.with_nodes(changed)))


def _comparable(region: Region, first: str, second: str) -> bool:
    """Say whether two values have one shape and type, and neither is computed from the other."""
    constants = region.graph.constants
    if first in constants and second in constants:
        one, other = constants[first], constants[second]
        return (
            one.shape == other.shape
            and one.dtype == other.dtype
            and one.dtype.kind == "f"
            and not np.array_equal(one, other)
        )
    shapes, dtypes = region.shapes, region.dtypes
    if first not in shapes or shapes[first] != shapes.get(second):
        return False
    if dtypes.get(first) != dtypes.get(second):
        return False
    return not any(
        one in _read_by(region.graph, region.graph.closure([other], region.feeds))
        for one, other in ((first, second), (second, first))
    )


def _exchanged(node: onnx.NodeProto, first: str, second: str) -> onnx.NodeProto:
    """Return the node with the two values swapped among its own inputs."""
    names = {first: second, second: first}
    copy = copied(node)
    for place, name in enumerate(copy.input):
        copy.input[place] = names.get(name, name)
    return copy

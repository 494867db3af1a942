"""How a convolution or a pooling pads what it reads: by how much, with what, and in which node."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx

from convkit.worker.cause.explanations.rewritten_nodes import shown
from convkit.worker.cause.graphs.runnable_graph import Graph, label, renamed_inputs
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import (
    Build,
    Rewrite,
    inserted,
    replaced,
    rewired,
    with_attribute,
    with_constants,
)
from convkit.worker.graph.operators.node_builder import NodeBuilder

_Places = Callable[[np.ndarray, int], np.ndarray]


def _reflected(places: np.ndarray, size: int) -> np.ndarray:
    """Return the places mirrored at the first and the last, which are not repeated."""
    inside = np.abs(places)
    return np.where(inside >= size, 2 * (size - 1) - inside, inside)


_WINDOWS = ("Conv", "MaxPool", "AveragePool")
# Indices of what padding repeats, for an axis of `size` elements; zeros are a node's own padding.
_MODES: dict[str, _Places] = {
    "the values at the edges": lambda places, size: np.clip(places, 0, size - 1),
    "a reflection": _reflected,
    "the values of the opposite side": lambda places, size: places % size,
}
# torch's arguments that say how much to pad: of a window on both sides of each axis, of a padding
# for the last axis first, before and after.
_BOTH_SIDES, _PAIRS = ("padding",), ("pad", "padding")
# Values further up that a node may have to read instead.
_SOURCES = 4

# Places to pad before each axis, then after each.
Amounts = tuple[int, ...]


def padding(region: Region) -> Iterator[Rewrite]:
    """Pad as the original does: a converter may pad by as much with other values, at one side
    only, or in nodes of its own.
    """
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        rank = len(region.shapes.get(node.input[0], ())) - 2 if node.input else 0
        if node.op_type == "Pad":
            yield from _own_amounts(region, index)
        if node.op_type not in _WINDOWS or rank < 1:
            continue
        for source in _sources(region, node):
            for amounts in _amounts(region, node, rank):
                yield from _padded(region, index, source, amounts)


def _padded(region: Region, index: int, source: str, amounts: Amounts) -> Iterator[Rewrite]:
    """Let a window read a value, padded in each of the ways."""
    node, own = region.graph.nodes[index], region.graph.nodes[index].input[0]
    edge = RegionEdge(node.output[0], 0, own)
    graph = region.graph if source == own else rewired(region.graph, edge, source)
    edge = RegionEdge(node.output[0], 0, source)
    now = _attributes(node).get("pads", [0] * len(amounts))
    instead = _instead(region, node, source)
    if source != own:
        zeros = _with_pads(graph, edge, amounts)
        padded = f", padded by {shown(list(amounts))} with zeros" if any(amounts) else ""
        yield Rewrite("attribute", node.output[0], f"{instead}{padded}", zeros)
    if not any(amounts):
        return
    by = shown(list(amounts))
    bare = _with_pads(graph, edge, (0,) * len(amounts))
    for values, places in _MODES.items():
        build = _gathered(region.shapes[source], amounts, places)
        if build is None:
            continue
        if source != own:
            text = f"{instead}, padded by {by} with {values}"
        elif any(now):
            text = f"it pads with zeros, by {shown(now)}, and should pad with {values}, by {by}"
        else:
            text = f"it does not pad its input, but should, by {by} with {values}"
        yield Rewrite("attribute", node.output[0], text, inserted(bare, edge, build))


def _sources(region: Region, node: onnx.NodeProto) -> list[str]:
    """Return what a window reads, and the known values that this was padded from."""
    own = node.input[0]
    shape = region.shapes[own]
    inside = region.graph.closure([own], region.feeds)
    read = dict.fromkeys(name for i in inside for name in region.graph.nodes[i].input if name)
    known = [
        name
        for name in read
        if name in region.feeds
        and region.shapes.get(name, ())[:2] == shape[:2]
        and _is_smaller(region.shapes[name], shape)
    ]
    return [own, *known[:_SOURCES]]


def _own_amounts(region: Region, index: int) -> Iterator[Rewrite]:
    """Let a Pad pad by as much as the original does on each side."""
    node = region.graph.nodes[index]
    name = node.input[1] if len(node.input) > 1 else ""
    now = region.graph.constants.get(name)
    if now is None or now.ndim != 1:  # computed, or an attribute, which is tried as such
        return
    for operation in region.operations:
        for key, pairs in operation.scalars:
            if key not in _PAIRS or not isinstance(pairs, tuple) or len(pairs) % 2:
                continue
            outer = (0,) * (now.size // 2 - len(pairs) // 2)
            before, after = np.split(np.array(_turned(pairs), now.dtype), 2)
            wanted = np.concatenate([outer, before, outer, after]).astype(now.dtype)
            if wanted.shape == now.shape and not np.array_equal(wanted, now):
                text = f"pads is {now.tolist()} and should be {wanted.tolist()}"
                own = f"{node.output[0]}//pads"
                changed = renamed_inputs(node, {name: own})
                graph = with_constants(replaced(region.graph, index, changed), {own: wanted})
                yield Rewrite("attribute", node.output[0], text, graph)


def _is_smaller(shape: tuple[int, ...], padded: tuple[int, ...]) -> bool:
    """Say whether padding makes one shape of another."""
    return (
        len(shape) == len(padded)
        and shape != padded
        and all(one <= other for one, other in zip(shape, padded, strict=True))
    )


def _instead(region: Region, node: onnx.NodeProto, source: str) -> str:
    """Say what a window reads in place of a value further up."""
    graph, own = region.graph, node.input[0]
    index = graph.producers.get(own)
    name = own if index is None else f"{graph.nodes[index].op_type} {label(graph.nodes[index])}"
    return f"it reads the result of {name} and should read {source}"


def _amounts(region: Region, node: onnx.NodeProto, rank: int) -> list[Amounts]:
    """Return by how much to pad: as the original's operations do, as the node does, by nothing, and
    by what keeps the size.
    """
    found: list[Amounts] = []
    for operation in region.operations:
        for name, value in operation.scalars:
            numbers = (value,) * rank if isinstance(value, int) else value
            if not isinstance(numbers, tuple) or not all(type(each) is int for each in numbers):
                continue
            if name in _BOTH_SIDES and len(numbers) == rank:
                found.append((*numbers, *numbers))
            elif name in _PAIRS and len(numbers) == 2 * rank:
                found.append(_turned(numbers))
    attributes = _attributes(node)
    pads = attributes.get("pads")
    if pads is not None:
        found.append(tuple(pads))
    kernel = attributes.get("kernel_shape")
    if kernel is not None:
        dilations = attributes.get("dilations", [1] * rank)
        half = [(size - 1) * step // 2 for size, step in zip(kernel, dilations, strict=True)]
        found.append((*half, *half))
    found.append((0,) * 2 * rank)
    return [each for each in dict.fromkeys(found) if len(each) == 2 * rank and min(each) >= 0]


def _turned(pairs: tuple[int, ...]) -> Amounts:
    """Return torch's pairs, the last axis first, as ONNX orders them."""
    before, after = pairs[::2], pairs[1::2]
    return (*before[::-1], *after[::-1])


def _attributes(node: onnx.NodeProto) -> Mapping[str, list[int]]:
    return {
        each.name: list(each.ints)
        for each in node.attribute
        if each.type == onnx.AttributeProto.INTS
    }


def _with_pads(graph: Graph, edge: RegionEdge, amounts: Amounts) -> Graph:
    """Return the graph in which a window itself pads by these amounts."""
    index = graph.producers[edge.reader]
    node = with_attribute(graph.nodes[index], "pads", list(amounts))
    kept = [each for each in node.attribute if each.name != "auto_pad"]
    del node.attribute[:]
    node.attribute.extend(kept)
    return replaced(graph, index, node)


def _gathered(shape: tuple[int, ...], amounts: Amounts, places: _Places) -> Build | None:
    """Return nodes that pad with elements of the value itself; None if it has too few of them."""
    rank = len(amounts) // 2
    wanted: dict[int, np.ndarray] = {}
    for axis, (before, after) in enumerate(zip(amounts[:rank], amounts[rank:], strict=True)):
        size = shape[2 + axis]
        if size < 2 or max(before, after) >= size:
            return None
        wanted[2 + axis] = places(np.arange(-before, size + after), size)

    def build(built: NodeBuilder, given: str) -> None:
        for axis, indices in wanted.items():
            inner = "" if axis == max(wanted) else str(axis)
            held = built.constant(f"places{axis}", indices)
            given = built.write("Gather", given, held, inner=inner, axis=axis)

    return build

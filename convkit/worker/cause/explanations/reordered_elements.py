"""Right values in another order than the original's: of heads, channels or pixels."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.matching.axis_layouts import AxisLayout, layout_of, layouts
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import Rewrite, holding, inserted

# Orders of up to four axes.
_MOST = 24
# These keep the order of elements.
_SHAPING = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast")


def other_values(region: Region) -> Iterator[Rewrite]:
    """Let a node read another of the original's known values, in the layout of the one it reads."""
    for edge in region.edges():
        own, layout = region.own.get(edge.value), region.layouts.get(edge.value)
        if own is None or layout is None:
            continue
        for name, other in region.own.items():
            if other.shape != own.shape or other.dtype != own.dtype or other is own:
                continue
            values = layout.apply(other)
            graph = inserted(region.graph, edge, holding(values))
            text = f"it reads {edge.value} and should read {name}, in the same layout"
            yield Rewrite("wiring", edge.reader, text, graph)


def reordered(region: Region) -> Iterator[Rewrite]:
    """Lay out an input of a node in every order that the original's axes allow.

    Values are known by their content, in whatever order: a reader may need another one.
    """
    for edge in region.edges():
        own, given = region.own.get(edge.value), region.feeds.get(edge.value)
        if own is None or given is None:
            continue
        for layout in layouts(own.shape, given.shape)[:_MOST]:
            values = layout.apply(own).astype(given.dtype)
            if np.array_equal(values, given):
                continue
            graph = inserted(region.graph, edge, holding(values))
            plain = list(layout.axes) == sorted(layout.axes)
            maker = _maker(region, edge, plain=plain)
            what = f"its input {edge.value} has" if maker is None else "its output has"
            how = _difference(own, given, layout)
            text = f"{what} the right values in the wrong order: {how}"
            yield Rewrite("order", maker or edge.reader, text, graph)


def _difference(own: np.ndarray, given: np.ndarray, layout: AxisLayout) -> str:
    """Describe the order that a value should have: which axes are swapped, if shapes show it."""
    plain = list(layout.axes) == sorted(layout.axes)
    now = layout_of(own, given, EQUAL)
    if own.shape == given.shape and now is not None and plain:
        moved = [axis for axis, source in enumerate(now.axes) if axis != source]
        if len(moved) == 2:
            return f"axes {moved[0]} and {moved[1]} are swapped"
        return f"its axes are permuted to {list(now.axes)}"
    how = "in the original's order" if plain else f"in the order {list(layout.axes)}"
    text = f"it should be the original's {list(own.shape)} with its axes {how}"
    return text if own.shape == given.shape else f"{text}, as {list(given.shape)}"


def _maker(region: Region, edge: RegionEdge, *, plain: bool) -> str | None:
    """Return the node that lays out a value for its only reader; None if the reader is at fault.

    A transpose that nothing else reads is there for that layout. So is any node whose reader needs
    the original's own order, as of values that were joined along another axis.
    """
    graph, name = region.graph, edge.value
    while (index := graph.producers.get(name)) is not None:
        node = graph.nodes[index]
        if len(graph.readers.get(name, ())) != 1 or name in graph.outputs:
            return None
        if node.op_type == "Transpose":
            return name
        if node.op_type not in _SHAPING:
            return name if plain else None
        name = node.input[0]
    return None

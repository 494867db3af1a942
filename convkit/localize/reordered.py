"""Right values in another order than the original's: of heads, channels or pixels."""

from collections.abc import Iterator

import numpy as np

from convkit.localize.edits import Rewrite, holding, inserted
from convkit.localize.matching import layouts
from convkit.localize.region import Region

# Orders of up to four axes.
_MOST = 24


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
            text = (
                f"its input {edge.value} has the right values in the wrong order: it should be the"
                f" original's {list(own.shape)} with its axes in the order {list(layout.axes)}, as"
                f" {list(given.shape)}"
            )
            yield Rewrite("order", edge.reader, text, graph)

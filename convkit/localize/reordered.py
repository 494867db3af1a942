"""Right values in another order than the original's: of heads, channels or pixels."""

from collections.abc import Iterator

import numpy as np

from convkit.localize.edits import Rewrite, inserted
from convkit.localize.matching import layouts
from convkit.localize.region import Region

# Orders of up to four axes.
_MOST = 24


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
            graph = inserted(
                region.graph, edge, lambda _, made, values=values: ([], {made: values})
            )
            text = (
                f"its input {edge.value} has the right values in the wrong order: it should be the"
                f" original's {list(own.shape)} with its axes in the order {list(layout.axes)}, as"
                f" {list(given.shape)}"
            )
            yield Rewrite("order", edge.reader, text, graph)

"""Recognizes boxes in another format than the original's."""

from collections.abc import Callable, Iterator

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned

# The four numbers of each box.
Numbers = tuple[np.ndarray, ...]
Convert = Callable[[Numbers], Numbers]

# How each format's numbers become corners, and corners its numbers.
FORMATS: dict[str, tuple[Convert, Convert]] = {
    "corners (x1, y1, x2, y2)": (lambda box: box, lambda box: box),
    "centers and sizes (cx, cy, w, h)": (
        lambda b: (b[0] - b[2] / 2, b[1] - b[3] / 2, b[0] + b[2] / 2, b[1] + b[3] / 2),
        lambda b: ((b[0] + b[2]) / 2, (b[1] + b[3]) / 2, b[2] - b[0], b[3] - b[1]),
    ),
    "corners and sizes (x, y, w, h)": (
        lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]),
        lambda b: (b[0], b[1], b[2] - b[0], b[3] - b[1]),
    ),
}
# Boxes. Of fewer, two formats may agree by chance.
_FEWEST = 3


def boxes(region: Region) -> Iterator[Rewrite]:
    """Convert boxes from one format to another, along each axis of four."""
    found = region.found()
    if found is None or found.size < 4 * _FEWEST:
        return
    for axis in range(found.ndim - 1, -1, -1):
        if found.shape[axis] != 4:
            continue
        for own, (corners, _) in FORMATS.items():
            for should, (_, numbers) in FORMATS.items():
                if own == should:
                    continue
                with np.errstate(all="ignore"):  # infinity less infinity: no box
                    values = np.stack(numbers(corners(tuple(np.moveaxis(found, axis, 0)))), axis)
                if relative_error(values, region.expected) <= EQUAL:
                    text = f"its output has boxes as {own}, and the original's are {should}"
                    graph = pinned(region.graph, region.target, values.astype(found.dtype))
                    yield Rewrite("missing", region.target, text, graph)

"""The original's operation that a node should compute, once the node is corrected."""

import numpy as np

from convkit.localize.edits import Rewrite
from convkit.localize.graph import PieceFailedError
from convkit.localize.matching import is_flat, layout_of
from convkit.localize.original import Operation, Recording
from convkit.localize.region import Region

_SAME = 1e-5


def counterpart(recording: Recording, region: Region, rewrite: Rewrite) -> Operation | None:
    """Return the operation that computes what the rewritten node computes; None if there is none.

    A place may span many operations, of which a fault concerns one.
    """
    if rewrite.node == region.target or rewrite.node not in rewrite.graph.producers:
        return None
    try:
        found = rewrite.graph.run([rewrite.node], region.feeds)[rewrite.node]
    except (PieceFailedError, KeyError):
        return None
    if found.dtype.kind not in "fiub" or found.size < 2 or is_flat(found):
        return None
    for operation in region.operations:
        for index in operation.outputs:
            own = recording.values[index].array
            if _alike(own, found) and layout_of(own, found, _SAME) is not None:
                return operation
    return None


def _alike(own: np.ndarray, found: np.ndarray) -> bool:
    return own.size == found.size and own.dtype.kind == found.dtype.kind

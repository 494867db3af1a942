"""The original's operation that a node should compute, once the node is corrected."""

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import PieceFailedError
from convkit.worker.cause.matching.axis_layouts import layout_of
from convkit.worker.cause.recording.recorded_call import Operation, Recording
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import INSERTED, Rewrite


def counterpart(recording: Recording, region: Region, rewrite: Rewrite) -> Operation | None:
    """Return the operation that computes what the rewritten node computes; None if there is none.

    A place may span many operations, of which a fault concerns one.
    """
    added = [
        name
        for name in rewrite.graph.producers
        if name.endswith(INSERTED) and name not in region.graph.producers
    ]
    # What lacks a step is the value that a node reads, not what the node makes of it.
    for name in (*added, rewrite.node):
        operation = _operation_of(recording, region, rewrite, name)
        if operation is not None:
            return operation
    return None


def _operation_of(
    recording: Recording, region: Region, rewrite: Rewrite, name: str
) -> Operation | None:
    """Return the operation that computes what a value is in the rewritten graph."""
    if name == region.target or name not in rewrite.graph.producers:
        return None
    try:
        found = rewrite.graph.run([name], region.feeds)[name]
    except (PieceFailedError, KeyError):
        return None
    if found.dtype.kind not in "fiub" or found.size < 2 or is_flat(found):
        return None
    for operation in region.operations:
        for index in operation.outputs:
            own = recording.values[index].array
            if _alike(own, found) and layout_of(own, found, EQUAL) is not None:
                return operation
    return None


def _alike(own: np.ndarray, found: np.ndarray) -> bool:
    return own.size == found.size and own.dtype.kind == found.dtype.kind

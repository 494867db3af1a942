"""What an operation of the original computes with other arguments, if the graph computes that."""

import time
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.worker.cause.matching.axis_layouts import layout_of
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.recorded_call import Operation
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned

# More operations are a part of the model.
_MOST = 16
# Operations that read elements at computed places.
_INDEXING = ("index", "gather", "index_select", "embedding")
# Seconds of processor time for all calls.
_SECONDS = 10.0


def other_arguments(region: Region) -> Iterator[Rewrite]:
    """Call one operation of the original with other arguments, and those after it with its result.

    However many nodes an exporter wrote for it: what the graph computes is what that gives.
    """
    found = region.found("fiub") if 0 < len(region.operations) <= _MOST else None
    if found is None or is_flat(found):
        return
    end = time.process_time() + _SECONDS
    for place, operation in enumerate(region.operations):
        for text, values, changed in _others(region, operation):
            if time.process_time() > end:
                return
            result = _result(region, place, values, changed)
            if result is None or result.size != found.size:
                continue
            if layout_of(result, found, EQUAL) is None or _is_right(region, result):
                continue
            elsewhere = operation.source != region.operations[-1].source and operation.source
            where = f" (at {operation.source})" if elsewhere else ""
            graph = pinned(region.graph, region.target, region.expected)
            yield Rewrite("attribute", region.target, f"it {text}{where}", graph)


def _others(
    region: Region, operation: Operation
) -> Iterator[tuple[str, dict[int, np.ndarray], dict[str, object]]]:
    """Yield arguments that an operation might have had: in words, tensors by number, and others."""
    if operation.replay is None:
        return
    for text, changed in operation.replay.others():
        yield f"computes {text}", {}, changed
    for text, values in _other_indices(region, operation):
        yield text, values, {}


def _other_indices(
    region: Region, operation: Operation
) -> Iterator[tuple[str, dict[int, np.ndarray]]]:
    """Yield the same index for all instead of computed ones: the last token for the marked one."""
    if operation.kind not in _INDEXING:
        return
    known = {number: region.own[name] for name, number in region.numbers.items()}
    known |= region.inner
    computed = {number: each.kind for each in region.operations for number in each.outputs}
    read = known.get(operation.inputs[0])
    if read is None:
        return
    for number in operation.inputs[1:]:
        given = known.get(number)
        if number not in computed or given is None or given.dtype.kind != "i" or not given.size:
            continue
        for index in dict.fromkeys((0, *(size - 1 for size in read.shape))):
            text = f"reads index {index} everywhere and should read what {computed[number]} finds"
            yield text, {number: np.full_like(given, index)}


def _is_right(region: Region, result: np.ndarray) -> bool:
    """Say whether a changed argument makes no difference."""
    right = next(iter(region.operations[-1].outputs), -1)
    expected = region.inner.get(right)
    if expected is None or expected.shape != result.shape:
        return False
    return relative_error(result, expected) <= EQUAL


def _result(
    region: Region, place: int, given: Mapping[int, np.ndarray], changed: Mapping[str, object]
) -> np.ndarray | None:
    """Return the last operation's result if one has other arguments; None if there is none."""
    values = dict(given)
    for operation in region.operations[place:]:
        own = changed if operation is region.operations[place] else {}
        if not own and not values.keys() & set(operation.inputs):
            continue
        results = _called(operation, values, own)
        if results is None:
            return None
        values |= zip(operation.outputs, results, strict=False)
    return values.get(next(iter(region.operations[-1].outputs), -1))


def _called(
    operation: Operation, values: Mapping[int, np.ndarray], changed: Mapping[str, object]
) -> tuple[np.ndarray, ...] | None:
    if operation.replay is None:
        return None
    try:
        return operation.replay(values, changed)
    except (RuntimeError, TypeError, ValueError, IndexError):  # torch refuses the arguments
        return None

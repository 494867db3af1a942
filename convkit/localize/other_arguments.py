"""What an operation of the original computes with other arguments, if the graph computes that."""

import time
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.localize.edits import Rewrite, pinned
from convkit.localize.matching import is_flat, layout_of, relative_error
from convkit.localize.original import Operation
from convkit.localize.parting import EQUAL
from convkit.localize.region import Region

# More operations are a part of the model.
_MOST = 16
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
        replay = operation.replay
        for text, changed in replay.others() if replay is not None else ():
            if time.process_time() > end:
                return
            result = _result(region, place, changed)
            if result is None or result.size != found.size:
                continue
            if layout_of(result, found, EQUAL) is None or _is_right(region, result):
                continue
            elsewhere = operation.source != region.operations[-1].source and operation.source
            where = f" (at {operation.source})" if elsewhere else ""
            graph = pinned(region.graph, region.target, region.expected)
            yield Rewrite("attribute", region.target, f"it computes {text}{where}", graph)


def _is_right(region: Region, result: np.ndarray) -> bool:
    """Say whether a changed argument makes no difference."""
    right = next(iter(region.operations[-1].outputs), -1)
    expected = region.inner.get(right)
    if expected is None or expected.shape != result.shape:
        return False
    return relative_error(result, expected) <= EQUAL


def _result(region: Region, place: int, changed: Mapping[str, object]) -> np.ndarray | None:
    """Return the last operation's result if one has other arguments; None if there is none."""
    values = dict[int, np.ndarray]()
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

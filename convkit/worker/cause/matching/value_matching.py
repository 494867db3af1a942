"""The same values on both sides: found by content, in any shape or order of axes."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from convkit.worker.cause.matching.axis_layouts import AxisLayout, nearest_layout
from convkit.worker.cause.matching.relative_difference import CLOSE, largest_error
from convkit.worker.cause.recording.recorded_call import Recording, Value
from convkit.worker.cause.recording.tensor_sketches import Sketches, is_flat

# What several operations in float32 may differ by, in parts of the rms.
_LAST_BITS = 8e-6


@dataclasses.dataclass(frozen=True)
class ValueMatch:
    """A value of the graph that is one of the original's, within `error` parts of its rms."""

    name: str
    value: int
    layout: AxisLayout
    error: float


def match_values(
    recording: Recording, found: Mapping[str, np.ndarray] | Sketches, within: float = CLOSE
) -> dict[str, ValueMatch]:
    """Return the graph's values that are the original's, by name; the nearest original for each.

    Weights and constants of the original are not matched: many values equal them by chance. Values
    that hardly vary, such as a softmax of few and similar scores, are nearly the same whatever they
    were computed from: they match by what varies, or up to the last bits.
    """
    sketches = found if isinstance(found, Sketches) else Sketches(found)
    matches: dict[str, ValueMatch] = {}
    for value in recording.values:
        if not _matchable(value, recording):
            continue
        near = sketches.near(value.sketch, value.array.size, 10 * within)
        if not near:
            continue
        limit = max(within * value.variation, min(within, _LAST_BITS))
        for name in near:
            if name in matches and matches[name].error == 0:
                continue
            nearest = nearest_layout(value.array, sketches.arrays[name], limit)
            if nearest is not None and (name not in matches or nearest[1] < matches[name].error):
                matches[name] = ValueMatch(name, value.index, *nearest)
    return matches


def _matchable(value: Value, recording: Recording) -> bool:
    return (
        value.array.size > 1
        and value.array.dtype.kind in "fiub"
        and (value.kind == "input" or value.index not in recording.fixed)
        and not is_flat(value.array)
    )


def worst_output_error(recording: Recording, found: Mapping[str, np.ndarray]) -> float:
    """Return the outputs' largest error, in parts of their rms; infinite if one is missing.

    Infinite also if the original returns no element, as a detector that sees nothing: a change that
    empties the graph's outputs, too, would look like the cause.
    """
    if not any(recording.output(name).size for name in recording.outputs):
        return math.inf
    return largest_error({name: recording.output(name) for name in recording.outputs}, found)

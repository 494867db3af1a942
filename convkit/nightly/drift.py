"""Figures against their history: a robust bound over many nights, never one point. Pure."""

import statistics
from collections.abc import Mapping, Sequence

from convkit.nightly.model import Drift

# Fewer earlier nights than this say nothing.
LEAST_HISTORY = 3
# By which share of the median a figure may grow whatever its history: rounding differs by thread
# counts, times by neighbours on the machine, sizes by next to nothing.
ALLOWANCE: dict[str, float] = {"max_abs_err": 0.5, "size_bytes": 0.02, "typical_seconds": 1.0}
# A spread this many times the median's deviation (scaled to a normal distribution's) is no chance.
_DEVIATIONS = 6.0
_TO_SIGMA = 1.4826


def find_drifts(
    now: Mapping[str, float], history: Mapping[str, Sequence[float]]
) -> tuple[Drift, ...]:
    """Return the figures that are larger than their history allows; names are `<target>/<metric>`,
    larger is worse.
    """
    found = []
    for name, value in now.items():
        target, _, metric = name.rpartition("/")
        earlier = [number for number in history.get(name, ()) if number == number]  # noqa: PLR0124 - without NaN
        if metric not in ALLOWANCE or len(earlier) < LEAST_HISTORY:
            continue
        median = statistics.median(earlier)
        deviation = statistics.median(abs(number - median) for number in earlier)
        bound = max(median + _DEVIATIONS * _TO_SIGMA * deviation, median * (1 + ALLOWANCE[metric]))
        if not value <= bound:
            found.append(Drift(target, metric, value, median, bound, len(earlier)))
    return tuple(found)

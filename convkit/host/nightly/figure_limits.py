"""How much worse a figure may be than the baseline's and its own history. Pure."""

import math
import statistics
from collections.abc import Mapping, Sequence

from convkit.host.audit.differences.across_processors import COSINE_NOISE
from convkit.host.nightly.nightly_record import NightlyFault
from convkit.host.nightly.run_snapshot import LARGER_IS_BETTER

# The relative amount by which a figure may exceed the baseline's. The same recipe, lock and kind of
# processor produce the same bytes and numbers, so there is no noise to allow for: a version string
# can change a size, the order of additions across threads can change parity.
ALLOWANCE: dict[str, float] = {
    "size_bytes": 0.001,
    "max_abs": 0.2,
    "mean_abs": 0.2,
    "rms": 0.2,
    "cosine": 0.2,
}

# The same for figures under MLflow's names, against the median of earlier runs. Latency depends on
# the machine's other load: it is reported but never fails a run.
HISTORY_ALLOWANCE: dict[str, float] = {
    "max_abs_err": 0.2,
    "mean_abs_err": 0.2,
    "rms_err": 0.2,
    "size_bytes": 0.001,
    "single_call_seconds": 1.0,
}
# A score's loss may be 0 or below, so a share of it allows too little for float64's own noise.
_SCORE_NOISE = 1e-6
NEVER_FAILS = "single_call_seconds"
# With fewer earlier runs, history is not used.
LEAST_HISTORY = 3
# A figure further from the median than this many deviations (scaled to a normal distribution) is
# not noise.
_DEVIATIONS = 6.0
_TO_SIGMA = 1.4826


def is_worse(metric: str, before: float, now: float) -> bool:
    """Return True if a figure is worse than a baseline's by more than its allowance; NaN always
    is.
    """
    allowance = ALLOWANCE[metric]
    if metric in LARGER_IS_BETTER:
        distance = 1.0 - before
        return not (1.0 - now <= max(distance * (1 + allowance), distance + COSINE_NOISE))
    return not (now <= before * (1 + allowance))


def is_better(metric: str, before: float, now: float) -> bool:
    """Return True if a figure is better than a baseline's by more than its allowance."""
    return math.isfinite(now) and is_worse(metric, now, before)


def is_worse_score(before: float, now: float, allowed: float = 0.0) -> bool:
    """Return True if a score lost more than the baseline's, by more than an allowance or a fifth;
    NaN always did.
    """
    return not (now <= before + max(0.2 * abs(before), _SCORE_NOISE, allowed))


def change_text(metric: str, before: float, now: float) -> str:
    """Format a change, `size_bytes 1000 -> 1050 (+5 %)`, with just enough digits to show it."""
    if metric == "size_bytes":
        texts = [f"{value:.0f}" for value in (before, now)]
    else:
        for digits in (3, 6, 9, 17):
            texts = [f"{value:.{digits}g}" for value in (before, now)]
            if texts[0] != texts[1]:
                break
    change = ""
    if metric not in LARGER_IS_BETTER and before > 0 and math.isfinite(now):
        ratio = now / before
        change = f" ({ratio:.6g} times)" if ratio >= 10 else f" ({100 * (ratio - 1):+.3g} %)"
    return f"{metric} {texts[0]} -> {texts[1]}{change}"


def history_faults(
    now: Mapping[str, float], history: Mapping[str, Sequence[float]]
) -> tuple[NightlyFault, ...]:
    """Return a fault for each figure that is larger than its history allows.

    Names are `<target>/<metric>`, and larger is worse. `history` must contain good runs only:
    otherwise, a persistent fault would eventually become the norm.
    """
    found = []
    for name, value in now.items():
        target, _, metric = name.rpartition("/")
        earlier = [number for number in history.get(name, ()) if math.isfinite(number)]
        if metric not in HISTORY_ALLOWANCE or len(earlier) < LEAST_HISTORY:
            continue
        median = statistics.median(earlier)
        deviation = statistics.median(abs(number - median) for number in earlier)
        bound = max(
            median + _DEVIATIONS * _TO_SIGMA * deviation, median * (1 + HISTORY_ALLOWANCE[metric])
        )
        if not (value <= bound):
            message = (
                f"{target} {change_text(metric, median, value)}"
                f" against the median of {len(earlier)} earlier nightly runs"
            )
            found.append(NightlyFault("figure", f"{target} {metric} (history)", message, target))
    return tuple(found)

"""Which candidates are worth having: the frontier of latency, size, error and task metric. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from convkit.host.record.tune_record import Candidate, Figures

Preference = Literal["speed", "size", "accuracy"]

# Differences within these factors are no reason to keep a candidate: kernels that add up in a
# different order change the largest error, and every format has its own header.
_SAME_ERROR = 2.0
_SAME_SIZE = 1.01


def frontier(candidates: Iterable[Candidate]) -> dict[str, str]:
    """Return the candidates that are not worth having: their names, and the name of another one
    that is at least as good in every respect. Of equal candidates, the first stays.
    """
    found = list(candidates)
    behind: dict[str, str] = {}
    for each in found:
        better = (other.name for other in found if dominates(other.figures, each.figures))
        if (name := next(better, None)) is not None:
            behind[each.name] = name
    ahead = [each for each in found if each.name not in behind]
    for index, each in enumerate(ahead):
        equal = (
            other.name
            for other in ahead[:index]
            if other.name not in behind and _equal(other.figures, each.figures)
        )
        if (name := next(equal, None)) is not None:
            behind[each.name] = name
    return {name: _last(name, behind) for name in behind}


def _last(name: str, behind: Mapping[str, str]) -> str:
    """Return who is ahead of a candidate and behind nobody."""
    while name in behind:
        name = behind[name]
    return name


def dominates(one: Figures, other: Figures) -> bool:
    """Return whether `one` is at least as good in every respect, and better in one.

    Latencies differ only if their confidence intervals are apart. Domination is transitive enough
    to have no cycles: sizes, errors and drops are compared in steps, and intervals that are apart
    are ordered.
    """
    if one.latency is None or other.latency is None:
        return False
    ours, theirs = _steps(one), _steps(other)
    if any(not a <= b for a, b in zip(ours, theirs, strict=True)):
        return False
    if not one.latency.low <= other.latency.high:
        return False
    return one.latency.high < other.latency.low or ours != theirs


def _equal(one: Figures, other: Figures) -> bool:
    if one.latency is None or other.latency is None:
        return False
    apart = one.latency.high < other.latency.low or other.latency.high < one.latency.low
    return not apart and _steps(one) == _steps(other)


def choose(candidates: Iterable[Candidate], prefer: Preference) -> Candidate | None:
    """Return the best candidate of the frontier; None if it is empty.

    What is preferred decides. Latencies within the noise of the fastest count as equal to it.
    """
    found = [each for each in candidates if each.figures.latency is not None]
    if not found:
        return None
    fastest = min(each.figures.latency.high for each in found if each.figures.latency is not None)

    def latency(figures: Figures) -> float:
        assert figures.latency is not None
        return 0.0 if figures.latency.low <= fastest else figures.latency.value

    size: Callable[[Figures], float] = lambda figures: _steps(figures)[0]  # noqa: E731 - one of three keys
    wrong: Callable[[Figures], tuple[float, float]] = lambda figures: (  # noqa: E731 - likewise
        _steps(figures)[2],
        _steps(figures)[1],
    )
    orders: Mapping[Preference, tuple[Callable[[Figures], object], ...]] = {
        "speed": (latency, size, wrong),
        "size": (size, latency, wrong),
        "accuracy": (wrong, latency, size),
    }
    return min(found, key=lambda each: tuple(key(each.figures) for key in orders[prefer]))


def _steps(figures: Figures) -> tuple[float, float, float]:
    """Return size, error and drop of the score as comparable numbers; unknown is worst."""
    return (
        _step(figures.size_bytes, _SAME_SIZE),
        _step(figures.error, _SAME_ERROR),
        0.0 if figures.drop is None else figures.drop,
    )


def _step(value: float | None, factor: float) -> float:
    if value is None or not math.isfinite(value):
        return math.inf
    return math.floor(math.log(value) / math.log(factor)) if value > 0 else -math.inf

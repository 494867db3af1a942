"""A run's progress and the time left, estimated from its stages' last times. Pure."""

import dataclasses
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class RemainingWork:
    """A stage of a plan, in seconds: `spent` so far, `expected` in all (None: it never ran)."""

    kind: str
    running: bool
    ended: bool
    spent: float
    expected: float | None


@dataclasses.dataclass(frozen=True)
class Overall:
    """`share` of the work that is done (0 to 1), and the seconds left; None if they are unknown."""

    done: int
    count: int
    share: float | None
    left: float | None


def overall(stages: Iterable[RemainingWork]) -> Overall:
    """Return how far a run is.

    A stage that never ran is expected to take as long as the others of its kind do; without any,
    nothing is promised. Stages that run at the same time share the time that is left.
    """
    stages = list(stages)
    by_kind: dict[str, list[float]] = {}
    for each in stages:
        known = each.spent if each.ended and each.spent else each.expected
        if known is not None:
            by_kind.setdefault(each.kind, []).append(known)
    done = sum(each.ended for each in stages)
    spent, left = 0.0, 0.0
    for each in stages:
        spent += each.spent
        if each.ended:
            continue
        alike = by_kind.get(each.kind)
        expected = each.expected
        if expected is None and alike:
            expected = sum(alike) / len(alike)
        if expected is None:
            return Overall(done, len(stages), None, None)
        left += max(expected - each.spent, 0.0)
    lanes = max(1, sum(each.running for each in stages))
    share = spent / (spent + left) if spent + left > 0 else 1.0
    return Overall(done, len(stages), share, left / lanes)

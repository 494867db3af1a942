"""Whether a reproduction came as close as earlier ones; nightly runs and audits say the same."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from convkit.host.audit.differences.across_processors import WITHIN_ROUNDING
from convkit.host.audit.past_runs.later_records import CLASSES, Reproduction, ReproductionClass
from convkit.host.record.processor_record import RecordedProcessor, processor_of

NUMERIC_OK = CLASSES.index("NUMERIC_OK")
_WITHIN_ROUNDING = CLASSES.index(WITHIN_ROUNDING)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The class of each artifact that a reproduction reached, and the processor it ran on."""

    ran_on: RecordedProcessor
    artifacts: Mapping[str, ReproductionClass]


@dataclasses.dataclass(frozen=True)
class LostClass:
    """An artifact that was reproduced worse than it should have been. `best` is the class that
    was reached before; None if none was, and not even the same results came out.
    """

    target: str
    likeness: ReproductionClass
    best: ReproductionClass | None

    def __str__(self) -> str:
        was = f", was {self.best}" if self.best is not None else ""
        if self.best == WITHIN_ROUNDING:  # another processor is expected to reach no more here
            was += " or better on another processor"
        return f"{self.target} reproduced as {self.likeness}{was}"


def best_classes(
    attempts: Iterable[Attempt], here: RecordedProcessor
) -> dict[str, ReproductionClass]:
    """Return the best class of each target that any attempt reached, if it is at least NUMERIC_OK.
    What another processor reached is not expected here beyond WITHIN_ROUNDING.
    """
    best: dict[str, ReproductionClass] = {}
    for attempt in attempts:
        is_here = attempt.ran_on.computes_as(here)
        for target, reached in attempt.artifacts.items():
            within = is_here or CLASSES.index(reached) >= _WITHIN_ROUNDING
            likeness = reached if within else WITHIN_ROUNDING
            if CLASSES.index(likeness) <= min(NUMERIC_OK, _rank(best.get(target))):
                best[target] = likeness
    return best


def _rank(likeness: ReproductionClass | None) -> int:
    return CLASSES.index(likeness) if likeness is not None else len(CLASSES)


def lost_classes(
    artifacts: Mapping[str, ReproductionClass],
    reached: Mapping[str, ReproductionClass],
    *,
    incomparable: Collection[str] = (),
    skipped: Collection[str] = (),
) -> tuple[LostClass, ...]:
    """Return the artifacts that reproduced worse than ever before, or not at all.

    An artifact that was never reproduced must at least produce the same results (NUMERIC_OK),
    unless it is one of the `skipped`, or this machine lacks its device. The figures of
    `incomparable` ones, which are of other integer kernels, cannot show more than that.
    """
    lost = []
    for target, likeness in artifacts.items():
        best = reached.get(target)
        if best is None and (likeness == "SKIPPED_NO_WORKER" or target in skipped):
            continue
        bound = CLASSES.index(best) if best is not None else NUMERIC_OK
        if target in incomparable:
            bound = max(bound, NUMERIC_OK)
        if CLASSES.index(likeness) > bound:
            lost.append(LostClass(target, likeness, best))
    return tuple(lost)


def lost_since(
    reproductions: Sequence[Reproduction], skipped: Collection[str] = ()
) -> tuple[tuple[LostClass, ...], ...]:
    """Return what each of a run's reproductions, oldest first, lost against those before it."""
    found = []
    attempts: list[Attempt] = []
    for each in reproductions:
        ran_on = processor_of(each.host)
        reached = best_classes(attempts, ran_on)
        lost = lost_classes(
            each.artifacts, reached, incomparable=each.incomparable, skipped=skipped
        )
        found.append(lost)
        attempts.append(Attempt(ran_on, each.artifacts))
    return tuple(found)

"""A candidate's figures, from a run's and a benchmark's records. Pure."""

import dataclasses
import math

from convkit.host.bench.benchmark_summary import largest_error
from convkit.host.record.bench_record import BenchRecord, GoalVerdict, ModelFigures
from convkit.host.record.display_text import ratio_text
from convkit.host.record.run_record import TargetReport
from convkit.host.record.tune_record import Figures


def verified_figures(report: TargetReport) -> Figures:
    """Return what a verification says: size, largest error (infinite if an output is not finite),
    the task's score.
    """
    compared = any(case.outputs for each in report.verifications for case in each.cases)
    error = largest_error(report)
    scores = [each.evaluation for each in report.verifications if each.evaluation is not None]
    worst = max(scores, key=lambda each: each.drop, default=None)
    return Figures(
        size_bytes=report.size_bytes or None,
        error=math.inf if error is None and compared else error,
        score=worst.candidate if worst is not None else None,
        drop=worst.drop if worst is not None else None,
    )


def timed_figures(figures: Figures, model: ModelFigures, size: str) -> Figures:
    """Return figures with the latency that a benchmark measured at a size, if it did."""
    found = model.at(size)
    if found is None:
        return figures
    return dataclasses.replace(figures, latency=found.ratios.get("p50"), p50=found.p50)


def original_figures(record: BenchRecord, size: str) -> Figures:
    """Return the original's figures."""
    found = record.original.at(size)
    return Figures(
        p50=found.p50 if found is not None else None, size_bytes=record.original.size_bytes
    )


def unmet(record: BenchRecord, name: str, *, undecided: bool) -> tuple[GoalVerdict, ...]:
    """Return the goals that a candidate misses and, if asked for, those that are undecided."""
    wanted = ("missed", "undecided", "no-figure") if undecided else ("missed",)
    return tuple(goal for goal in record.goals if goal.target == name and goal.status in wanted)


def goal_text(goal: GoalVerdict) -> str:
    """Return an unmet goal in words: 'goal missed: size <= 0.5x original, found 0.98x'."""
    where = f" at {goal.size}" if goal.size else ""
    found = f", found {ratio_text(goal.found.value)}x" if goal.found is not None else ""
    word = "missed" if goal.status == "missed" else "undecided"
    return f"goal {word}: {goal.figure} <= {goal.limit:g}x original{where}{found}"

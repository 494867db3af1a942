"""From a benchmark session to its record: figures, goals, findings, a summary. Pure."""

import dataclasses
import math
import statistics
import time
from collections.abc import Iterator, Mapping

from convkit.host.bench.goals import goal_findings, judge_goals
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.keys.recipe import Recipe, part_target
from convkit.host.record.bench_record import (
    FORMAT,
    ORIGINAL,
    BenchRecord,
    GoalVerdict,
    ModelFigures,
    SizeFigures,
)
from convkit.host.record.display_text import bytes_text, ratio_text
from convkit.host.record.latency_statistics import Rounds, Timings, noise, size_figures, waiting
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.protocol.errors import EXIT_FAILED, EXIT_VERIFIED
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import BenchResult, BenchSize, Hello


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a model's workers say beside its timings: the first message of each of its processes,
    and the last message of the last one.
    """

    hellos: tuple[Hello, ...]
    result: BenchResult


@dataclasses.dataclass(frozen=True)
class MeasuredSession:
    """What a session measured. `targets` are the names in the recipe's order, `absent` why some of
    them have no figures.
    """

    targets: tuple[str, ...]
    sizes: tuple[BenchSize, ...]
    timings: Timings
    measured: Mapping[str, Measured]
    absent: Mapping[str, str]
    threads: int
    seconds: float


def bench_record(
    record: RunRecord,
    recipe: Recipe,
    session: MeasuredSession,
    host: Mapping[str, Json],
    started: float,
) -> BenchRecord:
    """Return the record of a benchmark of a run."""
    reports = {target.name: target for target in record.targets}
    blank = ModelFigures(ORIGINAL, _framework(recipe), "cpu", str(recipe.reference_model.dtype))
    original = _with_figures(blank, session, recipe)
    targets = [
        _with_figures(_blank(reports[name], session), session, recipe) for name in session.targets
    ]
    goals: list[GoalVerdict] = []
    findings: list[Finding] = []
    for target in targets:
        if (wanted := recipe.goals_of(target.name)) is not None:
            judged = judge_goals(target, original, wanted.limits())
            goals += judged
            findings += goal_findings(target, original, judged, session.threads)
    first = {
        size: rounds
        for size, by_model in session.timings.items()
        if isinstance(rounds := by_model[ORIGINAL], Rounds)
    }
    missed = any(goal.status == "missed" for goal in goals)
    return BenchRecord(
        format=FORMAT,
        run=record.id,
        recipe=record.recipe,
        started=started,
        ended=time.time(),
        host=dict(host),
        threads=session.threads,
        rounds={size: len(rounds.seconds) for size, rounds in first.items()},
        noise={size: noise(rounds) for size, rounds in first.items()},
        waiting={
            size: waiting(each for each in by_model.values() if isinstance(each, Rounds))
            for size, by_model in session.timings.items()
        },
        models=(original, *targets),
        goals=tuple(goals),
        findings=tuple(findings),
        summary=tuple(_summary(targets)),
        exit_code=EXIT_FAILED if missed else EXIT_VERIFIED,
        seconds=session.seconds,
        processes=len(session.measured[ORIGINAL].hellos),
    )


def with_part(whole: BenchRecord, part: str, record: BenchRecord) -> BenchRecord:
    """Return a benchmark with that of one part: its original is called `original/<part>`, and its
    targets `<target>/<part>`.
    """
    original = dataclasses.replace(record.original, name=part_target(ORIGINAL, part))
    return dataclasses.replace(
        whole,
        models=(*whole.models, original, *record.targets),
        goals=(*whole.goals, *record.goals),
        findings=(*whole.findings, *record.findings),
        ended=record.ended,
        exit_code=max(whole.exit_code, record.exit_code),
    )


def _framework(recipe: Recipe) -> str:
    whole = recipe.original is not None or not recipe.parts
    originals = [recipe] if whole else list(recipe.graphs)
    found = ["torch" if each.reference_model.onnx is None else "onnxruntime" for each in originals]
    return ", ".join(dict.fromkeys(found))


def _blank(report: TargetReport, session: MeasuredSession) -> ModelFigures:
    return ModelFigures(
        report.name,
        report.runtime,
        report.device,
        report.precision,
        size_bytes=report.size_bytes or None,
        absent=session.absent.get(report.name),
        largest_error=largest_error(report),
    )


def _with_figures(blank: ModelFigures, session: MeasuredSession, recipe: Recipe) -> ModelFigures:
    """Return a model with what the session measured of it, if anything."""
    known = session.measured.get(blank.name)
    if known is None:
        return blank
    result = known.result
    return dataclasses.replace(
        blank,
        size_bytes=blank.size_bytes or result.size_bytes,
        load_seconds=statistics.median(each.load_seconds for each in known.hellos),
        first_call_seconds=statistics.median(each.first_call_seconds for each in known.hellos),
        peak_memory_bytes=result.peak_memory_bytes,
        sizes=tuple(_at_size(blank.name, size, session.timings, recipe) for size in session.sizes),
        profile=result.profile,
        unprofiled=result.unprofiled,
    )


def _at_size(name: str, size: BenchSize, timings: Timings, recipe: Recipe) -> SizeFigures:
    found, base = timings[size.name][name], timings[size.name][ORIGINAL]
    if isinstance(found, str):
        return SizeFigures(size.name, size.sizes, error=found)
    shape = contract_of(recipe).inputs[0].concrete_shape(size.sizes)
    original = base if isinstance(base, Rounds) and name != ORIGINAL else None
    return size_figures(size.name, size.sizes, found, original, shape[0] if shape else 1)


def largest_error(report: TargetReport) -> float | None:
    """Return the largest difference from the original in any case; None if one is not a number."""
    found = [
        output.metrics.max_abs
        for verification in report.verifications
        for case in verification.cases
        for output in case.outputs
    ]
    return max(found) if found and all(map(math.isfinite, found)) else None


def _summary(targets: list[ModelFigures]) -> Iterator[str]:
    """Yield which target is the fastest, the smallest, the most accurate."""
    fast = [(size.ratios["p50"].value, size.size, target.name)
            for target in targets for size in target.sizes[:1] if "p50" in size.ratios]  # fmt: skip
    if fast:
        ratio, size, name = min(fast)
        yield f"fastest: {name} ({ratio_text(ratio)}x the original's latency at {size})"
    if small := [(target.size_bytes, target.name) for target in targets if target.size_bytes]:
        yield f"smallest: {min(small)[1]} ({bytes_text(min(small)[0])})"
    close = [(each.largest_error, each.name) for each in targets
             if each.largest_error is not None and each.absent is None]  # fmt: skip
    if close:
        yield f"most accurate: {min(close)[1]} (largest error {min(close)[0]:.2g})"

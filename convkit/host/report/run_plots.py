"""What a run's record holds, as plots: errors by case and along the depth, headroom, cost, size.
Pure.

`MEASURES` draws a target's card. A new figure of a target is one more function there, which returns
None while the record does not have it. The latency comes from a benchmark's record: `report.bench`.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from convkit.host.record.display_text import bytes_text
from convkit.host.record.headroom import problems_of, worst_comparison
from convkit.host.record.run_record import CaseVerdict, RunRecord, TargetReport, Verification
from convkit.host.report.report_text import factor_text, figure_text, percent_text, share_text
from convkit.host.report.svg_elements import SvgFigure
from convkit.host.report.svg_plots import (
    NO_LIMIT,
    Bar,
    PlotAxis,
    PlotPoint,
    bar_plot,
    limit_plot,
    percent_tick,
    plain_tick,
)
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, Json, decode
from convkit.protocol.messages import EvaluationMetrics, ModulePrecision, PlanRound

_FLOAT32_BYTES = 4
_ERROR_AXIS = PlotAxis(percent_tick, limit="limit")
_ROUND_AXIS = PlotAxis(percent_tick, limit="limit", things="rounds")
_HEADROOM_AXIS = PlotAxis(plain_tick, limit="overflow", bad_side="below", things="modules")
_DEPTH_AXIS = PlotAxis(plain_tick, things="places")
_MORE_THAN_WEIGHTS = "More than the weights: the files also hold graph, constants and bindings."
_NO_FIGURE = "no figure"


def case_point(case: CaseVerdict, *, simulated: bool) -> PlotPoint:
    """Return a case's comparison that is closest to its limit, as the share of the limit."""
    worst = worst_comparison([case])
    if worst is None:
        return PlotPoint(case.case, math.nan, f"{case.case}: no output", case.passed, "no output")
    output = next((each for each in case.outputs if each.output == worst.output), None)
    without = None
    if output is None:
        without = "did not run"
    elif worst.limit is None:
        # A share is infinite for NaN: the plot's own "not finite". All else has no figure.
        kinds = {problem.kind for problem in problems_of(output)}
        if not kinds & {"nan", "infinity"}:
            without = NO_LIMIT if worst.passed else "not compared"
    where = f"{case.case}, {worst.output}" if len(case.outputs) > 1 else case.case
    share = f", {share_text(worst.share)}" if worst.limit is not None else ""
    label = f"{where}: {worst}{share}"
    return PlotPoint(case.case, worst.share, label, case.passed, without, hollow=simulated)


def decisive(target: TargetReport) -> Verification | None:
    """Return the verification that is closest to its limits or furthest beyond; None if no case
    ran.
    """

    def rank(verification: Verification) -> tuple[bool, float]:
        worst = worst_comparison(verification.cases)
        return (False, 0.0) if worst is None else (not worst.passed, worst.share)

    return max((each for each in target.verifications if each.cases), key=rank, default=None)


def ladder_measure(_: RunRecord, target: TargetReport) -> SvgFigure | None:
    """Return the error over the ladder, under the decisive release if there are several."""
    verification = decisive(target)
    if verification is None:
        return None
    title = "Error against its limit, case by case"
    if len(target.verifications) > 1:
        title = f"{title} ({target.runtime} {verification.label})"
    simulated = verification.evidence != "device"
    points = [case_point(case, simulated=simulated) for case in verification.cases]
    if verification.evaluation is not None and all(each.without == NO_LIMIT for each in points):
        return _score_plot(verification.evaluation)
    return limit_plot(points, _ERROR_AXIS, title)


def _score_plot(scored: EvaluationMetrics) -> SvgFigure | None:
    """Return the scores of the original and the target; without a limit, they alone decide."""
    if scored.error is not None:
        return None
    bars = [
        Bar(name, score, f"{score:.4g}")
        for name, score in (("original", scored.original), ("target", scored.candidate))
    ]
    return bar_plot(bars, f"{scored.metric} on {scored.rows} rows")


def output_plots(verification: Verification) -> list[tuple[str, SvgFigure]]:
    """Return one plot of the error over the ladder per output, with the output's name."""
    names = dict.fromkeys(output.output for case in verification.cases for output in case.outputs)
    simulated = verification.evidence != "device"
    plots = []
    for name in names:
        points = [
            case_point(_alone(case, name), simulated=simulated) for case in verification.cases
        ]
        plots.append((name, limit_plot(points, _ERROR_AXIS, f"Error of {name}, case by case")))
    return plots


def _alone(case: CaseVerdict, output: str) -> CaseVerdict:
    """Return a case with one of its outputs; a case that failed to run has none, and stays."""
    kept = tuple(each for each in case.outputs if each.output == output)
    passed = all(each.passed for each in kept) if kept else case.passed
    return dataclasses.replace(
        case, outputs=kept, passed=passed, error=None if kept else case.error
    )


def float32_bytes(record: RunRecord, target: TargetReport) -> int:
    """Return the size in float32 of the weights of a target's model, as the precision plans of its
    targets count them; 0 if no plan does. Of a joined model, every part must be counted.
    """
    counts: dict[str, int] = {}
    for each in record.targets:
        if each.plan is not None:
            weights = sum(row.low_weights + row.float32_weights for row in each.plan.modules)
            counts[_part_of(each)] = max(counts.get(_part_of(each), 0), weights)
    parts = {_part_of(each) for each in record.targets} - {""}
    if _part_of(target) or not parts:
        return _FLOAT32_BYTES * counts.get(_part_of(target), 0)
    return _FLOAT32_BYTES * sum(counts.values()) if parts <= counts.keys() else 0


def _part_of(target: TargetReport) -> str:
    """Return the part that a target is a share of; empty for a whole model."""
    return target.name.rpartition("/")[2] if "/" in target.name else ""


def size_measure(record: RunRecord, target: TargetReport) -> SvgFigure | None:
    """Return the size of the built files beside the float32 weights, else beside the largest target
    of the same model.
    """
    if not target.size_bytes:
        return None
    weights = float32_bytes(record, target)
    largest = max(e.size_bytes for e in record.targets if _part_of(e) == _part_of(target))
    whole, name = (weights, "the float32 weights") if weights else (largest, "the largest target")
    text = f"{bytes_text(target.size_bytes)}, {_ratio(target.size_bytes / whole)} of {name}"
    if not weights and target.size_bytes == largest:
        text = bytes_text(target.size_bytes)
    bar = Bar("Size", float(target.size_bytes), text)
    figure = bar_plot([bar], "Size on disk", full=float(whole))
    if weights and target.size_bytes > weights:
        return dataclasses.replace(figure, caption=_MORE_THAN_WEIGHTS)
    return figure


def _ratio(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.1 else percent_text(share)


def float32_measure(_: RunRecord, target: TargetReport) -> SvgFigure | None:
    """Return which share of a low-precision target stays in float32: weights and operations."""
    if target.plan is None or not target.plan.modules:
        return None
    rows = target.plan.modules
    weights = (sum(row.float32_weights for row in rows), sum(row.low_weights for row in rows))
    nodes = (sum(row.float32 for row in rows), sum(row.low for row in rows))
    bars = [
        Bar(f"{name} in float32", kept / (kept + low), _part(kept, kept + low))
        for name, (kept, low) in (("Weights", weights), ("Operations", nodes))
        if kept + low
    ]
    return bar_plot(bars, "Share kept in float32", full=1.0) if bars else None


def _part(kept: int, total: int) -> str:
    if not kept:
        return f"none of {total:,}"
    return f"{percent_text(kept / total)}, {kept:,} of {total:,}"


Measure = Callable[[RunRecord, TargetReport], SvgFigure | None]
MEASURES: tuple[Measure, ...] = (ladder_measure, size_measure, float32_measure)


def headroom_plot(rows: Sequence[ModulePrecision], dtype: str) -> SvgFigure | None:
    """Return by what factor each module's largest tensor may grow before it overflows, from the
    model's first module to its last; None if no range was measured.
    """
    if not any(row.headroom is not None for row in rows):
        return None
    points = [
        PlotPoint(
            row.module or "(root)",
            math.nan if row.headroom is None else row.headroom,
            _headroom_text(row, dtype),
            passed=row.headroom is None or row.headroom >= 1 or not row.low,
            without=_NO_FIGURE if row.headroom is None else None,
            hollow=not row.low,
        )
        for row in rows
    ]
    return limit_plot(points, _HEADROOM_AXIS, f"Headroom to the limit of {dtype}, module by module")


def _headroom_text(row: ModulePrecision, dtype: str) -> str:
    name = row.module or "(root)"
    kept = "" if row.low else ", kept in float32"
    if row.headroom is None:
        return f"{name}: no range measured{kept}"
    reach = f"{name}: reaches {figure_text(row.largest)} in {row.case}"
    if row.headroom >= 1:
        return f"{reach}, {factor_text(row.headroom)} times below {dtype}'s limit{kept}"
    return f"{reach}, beyond {dtype}'s limit{kept}"


def rounds_plot(rounds: Sequence[PlanRound]) -> SvgFigure | None:
    """Return the largest error of each round of a search for what to keep in float32, against its
    limit.
    """
    if not rounds:
        return None
    points = []
    for number, each in enumerate(rounds, 1):
        share = math.inf if each.overshoot is None else each.overshoot
        kept = ", ".join(each.keep_float32) or "nothing"
        label = f"round {number}, {kept} in float32: {share_text(share)} in {each.case}"
        points.append(PlotPoint(f"round {number}", share, label, passed=share <= 1))
    return limit_plot(points, _ROUND_AXIS, "Error against its limit, round by round")


def search_plot(finding: Finding) -> SvgFigure | None:
    """Return the same for a finding that tells of such a search; None for others."""
    rounds = finding.evidence.get("rounds")
    try:
        return rounds_plot(decode(tuple[PlanRound, ...], rounds)) if rounds else None
    except CodecError:
        return None


def growth_plot(finding: Finding) -> SvgFigure | None:
    """Return the error along the depth, from a cause to the outputs, in parts of each tensor's root
    mean square; None if the finding did not measure it.
    """
    found = finding.evidence.get("growth")
    pairs = [
        (str(pair[0]), _number(pair[1]))
        for pair in (found if isinstance(found, list) else [])
        if isinstance(pair, list) and len(pair) == 2
    ]
    if not pairs:
        return None
    points = [
        PlotPoint(place, error, f"{place}: off by {error:.2g} of its rms", passed=False)
        for place, error in pairs
    ]
    return limit_plot(points, _DEPTH_AXIS, "Error along the depth, in parts of each tensor's rms")


def cost_plot(finding: Finding) -> SvgFigure | None:
    """Return what quantizing each module costs at the outputs; None if the finding did not measure
    it.
    """
    rows = finding.evidence.get("modules")
    bars = [
        _cost(row)
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and {"module", "output_error", "share"} <= row.keys()
    ]
    title = "Error at the outputs with this module alone quantized"
    return bar_plot(bars, title) if bars else None


def _cost(row: dict[str, Json]) -> Bar:
    error, share = _number(row["output_error"]), _number(row["share"])
    finite = math.isfinite(error)
    text = f"{error:.2%}, {share:.0%} of the whole" if finite else "not finite"
    return Bar(str(row["module"]) or "(root)", error, text)


def _number(value: Json) -> float:
    """Return a figure of a finding's evidence, where NaN and infinity are strings."""
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return math.nan

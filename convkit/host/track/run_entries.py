"""Turns a run's record into MLflow entries: one for the run, one per stage. Pure functions that do
not import MLflow.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from convkit.host.record.headroom import non_finite, worst_comparison
from convkit.host.record.run_record import (
    CaseVerdict,
    RunRecord,
    StageReport,
    StageStatus,
    TargetReport,
    TargetStatus,
    Verification,
)
from convkit.host.record.run_summary import located_findings, seconds_of, waiver_lines
from convkit.host.track.mlflow_limits import PARAM_LENGTH, TAG_LENGTH, clipped, entry_name
from convkit.host.track.recipe_parameters import recipe_parameters, tool_versions
from convkit.host.track.run_columns import targets_text, verdict_text, worst_error_text
from convkit.host.track.run_description import stage_note, summary_note
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import Metric
from convkit.protocol.metrics.metric_registry import METRICS

# By these, earlier runs on processors that compute as this one are found.
PROCESSOR_TAGS = {
    "convkit.host.processor": "processor",
    "convkit.host.processor_features": "processor_features",
}
# Targets that a run's name lists.
_NAMED = 3

RunStatus = Literal["FINISHED", "FAILED", "SCHEDULED"]


@dataclasses.dataclass(frozen=True)
class MetricPoint:
    """One finite value of a metric. `target` is set for metrics of a target's logged model."""

    name: str
    value: float
    step: int = 0
    target: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for MLflow's viewer."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Json, ...], ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One MLflow run. Times are seconds since the epoch; `log` is a path in the run's folder."""

    name: str
    status: RunStatus
    started: float
    ended: float
    params: dict[str, str]
    tags: dict[str, str]
    points: tuple[MetricPoint, ...]
    table: Table | None = None
    log: str | None = None


def parent_entry(record: RunRecord) -> Entry:
    """Return the entry for the run as a whole."""
    tags = {
        **_common_tags(record, "run", record.status),
        "verdict": verdict_text(record),
        "worst_error": worst_error_text(record),
        "convkit.findings": " ".join(
            sorted({located.finding.code for located in located_findings(record)})
        ),
        "mlflow.source.name": " ".join(record.command),
        "mlflow.source.type": "LOCAL",
        "mlflow.note.content": summary_note(record),
        "convkit.targets": targets_text(record),
        **{name: str(record.host.get(key, "")) for name, key in PROCESSOR_TAGS.items()},
        **({"convkit.waivers": "\n".join(waiver_lines(record))} if waiver_lines(record) else {}),
    }
    statuses = [target.status for target in record.targets]
    points = [MetricPoint("run/seconds", record.ended - record.started)]
    points += [
        MetricPoint(f"run/targets_{status}", statuses.count(status))
        for status in get_args(TargetStatus)
    ]
    for target in record.targets:
        points += _target_points(record, target)
    points += _column_points(record.targets, [v for t in record.targets for v in t.verifications])
    return Entry(
        name=_run_name(record),
        status=_run_status(record.status),
        started=record.started,
        ended=record.ended,
        params=_params(
            {**recipe_parameters(record), "tools.convkit": record.convkit, **tool_versions(record)}
        ),
        tags=_tags(tags),
        points=_finite(points),
    )


def _run_name(record: RunRecord) -> str:
    """Return a name that tells runs of a list apart, also where the list cuts it: the verdict, the
    first code, the end of the id; then whom it concerns, the recipe, and the id.
    """
    concerned = [target for target in record.targets if target.status == record.status]
    names = [target.name for target in concerned]
    code = next((f" {each.leading.code}" for each in concerned if each.leading is not None), "")
    short = record.id.rpartition("-")[2]
    more = len(names) - _NAMED
    named = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    whom = "" if record.status == "verified" or not names else f" {named}"
    return f"{record.status}{code} {short}{whom}: {record.recipe} {record.id}"


def _column_points(
    targets: Sequence[TargetReport], verifications: Sequence[Verification]
) -> list[MetricPoint]:
    """Return the figures that every run has under the same names, so that they are columns of a
    list: the worst error, the size of what was built, the slowest typical call.
    """
    points = []
    worst = worst_comparison([case for each in verifications for case in each.cases])
    if worst is not None:
        points.append(MetricPoint("error_of_limit", _shown(worst.share)))
    if size := sum(target.size_bytes or 0 for target in targets):
        points.append(MetricPoint("size_mib", _shown(size / 2**20)))
    if calls := [median for each in verifications if (median := _call_seconds([each])) is not None]:
        points.append(MetricPoint("latency_ms", _shown(max(calls) * 1e3)))
    return points


def _shown(figure: float) -> float:
    """Return a figure with the digits that fit a column of MLflow's list."""
    return float(f"{figure:.4g}")


def _call_seconds(verifications: Iterable[Verification]) -> float | None:
    """Return the median of one call without warm-up, to notice what became many times slower;
    `convkit bench` measures latencies. A simulation's time says nothing about its target.
    """
    calls = [
        case.seconds
        for verification in verifications
        for case in verification.cases
        if verification.evidence == "device" and case.case == "typical" and case.error is None
    ]
    return statistics.median(calls) if calls else None


def child_entries(record: RunRecord) -> tuple[Entry, ...]:
    """Return an entry per stage; a verify stage's entry contains its verification."""
    verifications = {
        v.id if v.evidence == "simulated" and v.family is not None else v.stage: (target, v)
        for target in record.targets
        for v in target.verifications
    }
    entries = [
        _stage_entry(record, stage, verifications.pop(stage.id, None)) for stage in record.stages
    ]
    for stage, (target, verification) in verifications.items():  # verified without its own stage
        report = StageReport(
            id=stage,
            kind="verify",
            key="",
            status="skipped" if verification.status == "skipped" else "done",
            reason=verification.headline,
            target=target.name,
            version=verification.version,
        )
        entries.append(_stage_entry(record, report, (target, verification)))
    return tuple(entries)


def _stage_entry(
    record: RunRecord, stage: StageReport, verified: tuple[TargetReport, Verification] | None
) -> Entry:
    status: TargetStatus | StageStatus = (
        verified[1].status if verified is not None else stage.status
    )
    role = "verification" if verified is not None else "stage"
    note = stage_note(stage, verified[1] if verified is not None else None)
    tags = _common_tags(record, role, status) | _stage_tags(stage) | {"mlflow.note.content": note}
    params = {f"tools.{name}": version for name, version in stage.versions.items()}
    points = [
        MetricPoint(f"{stage.kind}/seconds", stage.seconds),
        MetricPoint(f"{stage.kind}/peak_memory_bytes", stage.peak_memory_bytes),
    ]
    table = None
    if verified is not None:
        target, verification = verified
        params |= {
            "runtime": target.runtime,
            "device": target.device,
            "precision": target.precision,
        }
        tags["convkit.evidence"] = verification.evidence
        tags["verdict"] = f"{target.name} {verification.status}"
        worst = worst_comparison(verification.cases)
        tags["worst_error"] = "" if worst is None else str(worst)
        points += _verification_points(verification)
        points += _column_points([target], [verification])
        table = case_table(verification)
    # A cached stage did not run, so it has no times of its own and is shown at the run's
    # start.
    started = stage.started if stage.started is not None else record.started
    return Entry(
        name=stage.id,
        status=_run_status(status),
        started=started,
        ended=stage.ended if stage.ended is not None else started,
        params=_params(params),
        tags=_tags(tags),
        points=_finite(points),
        table=table,
        log=stage.log,
    )


def _stage_tags(stage: StageReport) -> dict[str, str]:
    tags = {"stage": stage.id, "target": stage.target}
    return {f"convkit.{name}": value for name, value in tags.items() if value is not None}


def _run_status(status: TargetStatus | StageStatus) -> RunStatus:
    """Return MLflow's status. Nothing but what was proven is FINISHED, which MLflow shows in green.
    What was neither proven nor failed is SCHEDULED: it shows KILLED in red, as it does FAILED.
    """
    match status:
        case "verified" | "done" | "hit":
            return "FINISHED"
        case "failed" | "waived" | "broken":
            return "FAILED"
        case "unproven" | "skipped" | "blocked":
            return "SCHEDULED"


def _common_tags(record: RunRecord, role: str, status: str) -> dict[str, str]:
    return {
        "convkit.run": record.id,
        "convkit.role": role,
        "convkit.status": status,
        "convkit.recipe": record.recipe,
    }


def _target_points(record: RunRecord, target: TargetReport) -> list[MetricPoint]:
    """Return a target's worst metrics over all cases, outputs and releases."""
    cases = [case for verification in target.verifications for case in verification.cases]
    metrics = [output.metrics for case in cases for output in case.outputs]
    points: list[MetricPoint] = []
    for metric in METRICS.values():
        values = [metric.read(one) for one in metrics]
        points += _worst(f"{target.name}/{metric.logged_as}", values, metric)
    worst = worst_comparison(cases)
    if worst is not None:
        points.append(MetricPoint(f"{target.name}/share_of_limit", worst.share))
        points.append(MetricPoint(f"{target.name}/non_finite", sum(map(non_finite, metrics))))
        points.append(MetricPoint(f"{target.name}/cases", len(cases)))
        points.append(
            MetricPoint(f"{target.name}/cases_failed", sum(not case.passed for case in cases))
        )
    if target.size_bytes:
        points.append(MetricPoint(f"{target.name}/size_bytes", target.size_bytes))
    points.append(MetricPoint(f"{target.name}/seconds", seconds_of(record, target.name)))
    if (call := _call_seconds(target.verifications)) is not None:
        points.append(MetricPoint(f"{target.name}/single_call_seconds", call))
    return [dataclasses.replace(point, target=target.name) for point in points]


def _verification_points(verification: Verification) -> list[MetricPoint]:
    """Return each output's worst metrics, and its metrics case by case, with the case's position in
    the ladder as the step.
    """
    points = [
        MetricPoint("verify/cases", len(verification.cases)),
        MetricPoint("verify/cases_failed", sum(not case.passed for case in verification.cases)),
        MetricPoint("verify/cases_omitted", len(verification.omitted)),
    ]
    for output, measured in _by_output(verification.cases).items():
        for metric in METRICS.values():
            values = [metric.read(metrics) for _, metrics in measured]
            points += _worst(f"verify/{output}/{metric.logged_as}", values, metric)
            points += [
                MetricPoint(
                    f"verify/{output}/by_case/{metric.logged_as}", metric.read(metrics), step
                )
                for step, metrics in measured
            ]
        points.append(
            MetricPoint(
                f"verify/{output}/non_finite", sum(non_finite(metrics) for _, metrics in measured)
            )
        )
    return points + [
        MetricPoint("verify/by_case/seconds", case.seconds, i)
        for i, case in enumerate(verification.cases)
    ]


def _by_output(cases: Sequence[CaseVerdict]) -> dict[str, list[tuple[int, TensorMetrics]]]:
    found: dict[str, list[tuple[int, TensorMetrics]]] = {}
    for step, case in enumerate(cases):
        for output in case.outputs:
            found.setdefault(output.output, []).append((step, output.metrics))
    return found


def _worst(name: str, values: Sequence[float], metric: Metric) -> list[MetricPoint]:
    """Return the worst value. If some are not finite, return their number instead: the worst of the
    others would look too good.
    """
    if not values:
        return []
    if undefined := sum(not math.isfinite(value) for value in values):
        return [MetricPoint(f"{name}_undefined", undefined)]
    return [MetricPoint(name, metric.worst(values))]


def case_table(verification: Verification) -> Table:
    """Return a row per case and output, with every metric and limit."""
    columns = (
        "case",
        "sizes",
        "output",
        "passed",
        *(metric.logged_as for metric in METRICS.values()),
        "non_finite",
        "limits",
        "failures",
        "seconds",
    )
    rows: list[tuple[Json, ...]] = []
    for case in verification.cases:
        sizes = json.dumps(case.sizes)
        if case.error is not None:
            rows.append(
                (
                    case.case,
                    sizes,
                    None,
                    False,
                    *(None for _ in METRICS),
                    None,
                    None,
                    case.error,
                    case.seconds,
                )
            )
        for output in case.outputs:
            figures = [_table_number(metric.read(output.metrics)) for metric in METRICS.values()]
            limits, failures = json.dumps(output.limits), "; ".join(output.failures)
            unequal = non_finite(output.metrics)
            rows.append(
                (
                    case.case,
                    sizes,
                    output.output,
                    output.passed,
                    *figures,
                    unequal,
                    limits,
                    failures,
                    case.seconds,
                )
            )
    return Table(columns, tuple(rows))


def _table_number(value: float) -> float | str:
    """Return a value for a table cell. JSON has no NaN, so such values become text."""
    return value if math.isfinite(value) else str(value)


def _finite(points: Iterable[MetricPoint]) -> tuple[MetricPoint, ...]:
    """Return the finite points: MLflow stores infinity as 1.8e308 and does not draw NaN."""
    return tuple(
        dataclasses.replace(point, name=entry_name(point.name))
        for point in points
        if math.isfinite(point.value)
    )


def _params(values: dict[str, str]) -> dict[str, str]:
    return {entry_name(name): clipped(value, PARAM_LENGTH) for name, value in values.items()}


def _tags(values: dict[str, str]) -> dict[str, str]:
    return {entry_name(name): clipped(value, TAG_LENGTH) for name, value in values.items() if value}

"""What people read off a run's record: how close to its limits, on which evidence, what was left
out. Pure.

The terminal's table, the HTML report and MLflow show the same figures because they all take them
from here.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping

from convkit.findings.model import Finding
from convkit.record.model import (
    CaseVerdict,
    OutputVerdict,
    RunRecord,
    StageReport,
    TargetReport,
    Verification,
)
from convkit.worker.protocol import TensorMetrics

SEVERITIES = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True)
class Worst:
    """The comparison that used the largest share of its limit.

    `share` is error / limit (1 at the limit; infinite where the figure is not a number or nothing
    was compared); `problem` says what was wrong where a figure alone does not tell: NaN, another
    shape, a refusal to run.
    """

    case: str
    output: str | None
    limit: str | None
    found: float
    allowed: float
    share: float
    passed: bool
    problem: str | None = None

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.limit is None:
            return "no limit was set"
        return comparison(self.limit, self.found, self.allowed, passed=self.passed)


def comparison(limit: str, found: float, allowed: float, *, passed: bool) -> str:
    """Return 'max_abs 1.2e-05 <= 0.0001': a figure beside its limit, so that a breach reads as one."""
    if limit == "cosine":
        # Cosines crowd below 1: nine decimals tell them apart where three digits would all read as
        # 1.
        return f"cosine {found:.9g} {'>=' if passed else '<'} {allowed:.9g}"
    return f"{limit} {found:.3g} {'<=' if passed else '>'} {allowed:.3g}"


def worst_comparison(cases: Iterable[CaseVerdict]) -> Worst | None:
    """Return the comparison closest to (or furthest beyond) its limit; failures go before passes.
    None without any.
    """
    found = list(_comparisons(cases))
    # Of equals the first: cases climb from simple to hard, and the simplest failure is the one to
    # look at.
    return max(found, key=lambda worst: (not worst.passed, worst.share), default=None)


def _comparisons(cases: Iterable[CaseVerdict]) -> Iterator[Worst]:
    for case in cases:
        if case.error is not None:
            problem = f"the runtime failed: {first_line(case.error)}"
            yield Worst(
                case.case, None, None, math.nan, math.nan, math.inf, passed=False, problem=problem
            )
        for output in case.outputs:
            yield worst_of_output(case.case, output)


def worst_of_output(case: str, output: OutputVerdict) -> Worst:
    """Return an output's comparison with the largest share of its limit."""
    shares = [
        (share(name, found, allowed, output.metrics, output.limits), name, found, allowed)
        for name, found, allowed in limited_figures(output)
    ]
    problem = _unlimited_problem(output)
    if not shares or problem is not None:
        ratio = 0.0 if output.passed else math.inf
        return Worst(case, output.output, None, math.nan, math.nan, ratio, output.passed, problem)
    ratio, name, found, allowed = max(shares, key=lambda item: item[0])
    return Worst(case, output.output, name, found, allowed, ratio, output.passed)


def _unlimited_problem(output: OutputVerdict) -> str | None:
    """Return the failure that no limit's figure shows: NaN, infinities, another shape, no elements."""
    names = {name for name, _, _ in limited_figures(output)}
    others = [failure for failure in output.failures if failure.partition(" ")[0] not in names]
    return others[0] if others else None


def limited_figures(output: OutputVerdict) -> list[tuple[str, float, float]]:
    """Return (limit's name, figure found, figure allowed) for every limit; atol and rtol are one
    limit, `atol`.
    """
    metrics, limits = output.metrics, output.limits
    figures = [
        (name, getattr(metrics, name), allowed)
        for name, allowed in limits.items()
        if name in _PLAIN_LIMITS
    ]
    if "atol" in limits or "rtol" in limits:
        rtol = limits.get("rtol", 0.0)
        excess = max(
            (error - rtol * magnitude for magnitude, error in metrics.frontier), default=math.nan
        )
        figures.append(("atol", excess, limits.get("atol", 0.0)))
    return figures


_PLAIN_LIMITS = ("max_abs", "max_rel", "mean_abs", "rms", "cosine")


def share(
    limit: str, found: float, allowed: float, metrics: TensorMetrics, limits: Mapping[str, float]
) -> float:
    """Return how much of a limit a figure uses: 1 at the limit, infinite where the figure is not a
    number.
    """
    match limit:
        case "cosine":
            return _ratio(1.0 - found, 1.0 - allowed)
        case "atol":
            rtol = limits.get("rtol", 0.0)
            shares = (
                _ratio(error, allowed + rtol * magnitude) for magnitude, error in metrics.frontier
            )
            return max(shares, default=math.inf)
        case _:
            return _ratio(found, allowed)


def _ratio(error: float, allowed: float) -> float:
    if math.isnan(error):
        return math.inf
    if allowed == 0.0:
        return math.inf if error > 0.0 else 0.0
    return error / allowed


def non_finite(metrics: TensorMetrics) -> int:
    """Return how many elements could not be compared: NaN on either side, or infinities that do not
    match.
    """
    return metrics.nan_candidate + metrics.nan_reference + metrics.inf_mismatched


def first_failing_case(verification: Verification) -> CaseVerdict | None:
    """Return the simplest case that failed; cases climb from simple to hard."""
    return next((case for case in verification.cases if not case.passed), None)


def evidence_of(target: TargetReport) -> tuple[str, ...]:
    """Return what a target's verdict rests on (`device`, `simulated`, `skipped`), each once."""
    return tuple(dict.fromkeys(verification.evidence for verification in target.verifications))


def stages_of(record: RunRecord, target: str) -> tuple[StageReport, ...]:
    """Return the stages that belong to one target alone."""
    return tuple(stage for stage in record.stages if stage.target == target)


def seconds_of(record: RunRecord, target: str) -> float:
    """Return what a target's own stages took, in seconds, whenever they ran."""
    return sum(stage.seconds for stage in stages_of(record, target))


@dataclasses.dataclass(frozen=True)
class Located:
    """A finding and everything it was found in: targets, releases of a runtime, or a shared stage."""

    finding: Finding
    where: tuple[str, ...]


def located_findings(record: RunRecord) -> tuple[Located, ...]:
    """Return the findings without repetition, errors first, each with the targets and stages that
    show it.
    """
    found: dict[str, Finding] = {}
    where: dict[str, list[str]] = {}

    def note(finding: Finding, place: str) -> None:
        found.setdefault(str(finding), finding)
        places = where.setdefault(str(finding), [])
        if place not in places:
            places.append(place)

    for target in record.targets:
        for verification in target.verifications:
            for finding in verification.findings:
                note(finding, target.name)
        for finding in target.findings:
            note(finding, target.name)
    for stage in record.stages:
        for finding in stage.findings:
            note(finding, stage.target or stage.id)
    ordered = sorted(found, key=lambda key: SEVERITIES.index(found[key].severity))
    return tuple(Located(found[key], tuple(where[key])) for key in ordered)


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Something that was not proven, and why."""

    what: str
    reason: str


def left_out(record: RunRecord) -> tuple[LeftOut, ...]:
    """Return everything that this run does not prove: skipped targets, stages that did not run,
    omitted cases.

    Things left out for one reason stand together; what follows from a skipped target is not told
    again.
    """
    skipped = {target.name for target in record.targets if target.status == "skipped"}
    items: dict[str, list[str]] = {}
    for target in record.targets:
        if target.name in skipped:
            items.setdefault(target.headline, []).append(f"target {target.name}")
    for stage in record.stages:
        if stage.status in ("skipped", "blocked") and stage.target not in skipped:
            why = stage.reason if stage.status == "blocked" else stage.error or stage.reason
            items.setdefault(first_line(why), []).append(f"stage {stage.id}")
    for target in record.targets:
        for verification in target.verifications:
            name = verified_name(target, verification)
            if verification.status == "skipped" and target.name not in skipped:
                items.setdefault(verification.headline, []).append(f"verification of {name}")
            for omitted in verification.omitted:
                items.setdefault(omitted.reason, []).append(f"case {omitted.name} of {name}")
    for reason, names in _padding(record).items():
        items.setdefault(reason, []).extend(names)
    return tuple(LeftOut(", ".join(dict.fromkeys(what)), reason) for reason, what in items.items())


def _padding(record: RunRecord) -> dict[str, list[str]]:
    """Return what was measured at padding and not judged, by the reason that says how far it
    differs.
    """
    worst: dict[str, float] = {}
    places: dict[str, list[str]] = {}
    for target in record.targets:
        for verification in target.verifications:
            for metrics in (
                output.metrics for case in verification.cases for output in case.outputs
            ):
                if metrics.padding_elements:
                    worst[metrics.output] = max(
                        worst.get(metrics.output, 0.0), metrics.padding_max_abs
                    )
                    places.setdefault(metrics.output, []).append(
                        verified_name(target, verification)
                    )
    masks = {spec.name: spec.mask for spec in record.contract.outputs}
    reasons: dict[str, list[str]] = {}
    for name, largest in worst.items():
        reason = f"{masks.get(name)} marks it as padding; it differs by at most {largest:.2g} there"
        reasons.setdefault(reason, []).append(
            f"padding of {name} in {', '.join(dict.fromkeys(places[name]))}"
        )
    return reasons


def verified_name(target: TargetReport, verification: Verification) -> str:
    """Return a target's name, with the runtime release where the target was verified under several."""
    if len(target.verifications) > 1 and verification.version:
        return f"{target.name} ({target.runtime} {verification.version})"
    return target.name


def verdict(record: RunRecord) -> str:
    """Return the run in one sentence: how many targets stand how."""
    counts = dict.fromkeys(("verified", "failed", "broken", "skipped"), 0)
    for target in record.targets:
        counts[target.status] += 1
    parts = [f"{count} {status}" for status, count in counts.items() if count]
    total = len(record.targets)
    return f"{total} target{'' if total == 1 else 's'}: {', '.join(parts) or 'nothing was built'}"


def bytes_text(size: int) -> str:
    """Return a size for people: '86.7 MiB'."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration for people: '0.42 s', '8.1 s', '3 min 05 s', '2 h 10 min'."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:  # what rounds to a minute is told as one
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return a case's axis sizes: 'batch=4, sequence=128'."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"


def first_line(text: str) -> str:
    """Return the first line that holds something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")

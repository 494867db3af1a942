"""A run's record, arranged for its readers: what the report's templates show. Pure."""

import dataclasses
import re
from pathlib import PurePosixPath

from convkit.host.record.bench_record import BenchRecord
from convkit.host.record.next_commands import next_commands
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus, Verification
from convkit.host.record.run_summary import LocatedFinding, causes, evidence_of, stages_of
from convkit.host.report.bench_section import latency_measure
from convkit.host.report.cause_path import cause_path, title_of
from convkit.host.report.report_text import magnitude_text
from convkit.host.report.run_facts import run_facts
from convkit.host.report.run_plots import (
    MEASURES,
    cost_plot,
    growth_plot,
    headroom_plot,
    output_plots,
    rounds_plot,
    search_plot,
)
from convkit.host.report.svg_elements import SvgFigure
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision, ModulePrecision, PlanRound

_NAMED = 3
# Cards in the order in which they need somebody.
_ORDER: tuple[TargetStatus, ...] = ("broken", "failed", "unproven", "waived", "skipped", "verified")
_GRAPH = "model.onnx"
_BINDINGS = re.compile(r"bindings\.\w+")


@dataclasses.dataclass(frozen=True)
class FindingView:
    """A finding with its anchor, everything that shows it, and its plots. `leads` a target's
    verdict.
    """

    anchor: str
    located: LocatedFinding
    title: str
    leads: bool
    plots: tuple[SvgFigure, ...]


@dataclasses.dataclass(frozen=True)
class VerificationView:
    """A verification with one plot per output, where the card's plot does not say the same."""

    verification: Verification
    plots: tuple[tuple[str, SvgFigure], ...]


@dataclasses.dataclass(frozen=True)
class TargetView:
    """A target: its card (`measures`, `leading`) and its section.

    `evidence` is what its verdict rests on, `why_simulated` why that is a simulation, `path` the
    way from the cause to the first failing output, `kept` the modules that stay in float32, in part
    or whole, each with why, `low` what the others compute in. `graph`: what was built is one that
    `convkit view` shows.
    """

    target: TargetReport
    anchor: str
    evidence: tuple[str, ...]
    why_simulated: str | None
    measures: tuple[SvgFigure, ...]
    leading: FindingView | None
    findings: tuple[FindingView, ...]
    path: SvgFigure | None
    verifications: tuple[VerificationView, ...]
    headroom: SvgFigure | None
    rounds: SvgFigure | None
    kept: tuple[tuple[ModulePrecision, str], ...]
    low: str
    models: tuple[str, ...]
    bindings: tuple[str, ...]
    logs: tuple[str, ...]
    graph: bool


@dataclasses.dataclass(frozen=True)
class RunView:
    """A run: the verdict in a sentence, its targets, those that need somebody first, and each
    finding once. `facts` are its first line, `commands` lead on from it, each with what it does.
    """

    sentence: str
    facts: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    targets: tuple[TargetView, ...]
    findings: tuple[FindingView, ...]

    @property
    def simulated(self) -> tuple[TargetView, ...]:
        """The targets of which at least one verification was only a simulation."""
        return tuple(each for each in self.targets if "simulated" in each.evidence)


def run_view(record: RunRecord, bench: BenchRecord | None = None) -> RunView:
    """Return what the report of a run shows, with a benchmark of it if there is one."""
    leading = {
        str(finding)
        for target in record.targets
        for finding in (target.leading, *(each.leading for each in target.verifications))
        if finding is not None
    }
    findings = tuple(
        FindingView(
            f"finding-{number}",
            located,
            title_of(located.finding),
            str(located.finding) in leading,
            _plots(located.finding),
        )
        for number, located in enumerate(causes(record), 1)
    )
    anchors = _anchors([target.name for target in record.targets])
    targets = tuple(
        _target_view(record, target, anchor, findings, bench)
        for target, anchor in zip(record.targets, anchors, strict=True)
    )
    targets = tuple(sorted(targets, key=lambda view: _ORDER.index(view.target.status)))
    return RunView(
        sentence(record), tuple(run_facts(record)), tuple(next_commands(record)), targets, findings
    )


def _plots(finding: Finding) -> tuple[SvgFigure, ...]:
    found = (growth_plot(finding), search_plot(finding), cost_plot(finding))
    return tuple(plot for plot in found if plot is not None)


def _anchors(names: list[str]) -> list[str]:
    """Return an anchor for each name; those that are not plain words get a number."""
    return [
        f"target-{name}" if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else f"target:{number}"
        for number, name in enumerate(names, 1)
    ]


def _target_view(
    record: RunRecord,
    target: TargetReport,
    anchor: str,
    findings: tuple[FindingView, ...],
    bench: BenchRecord | None,
) -> TargetView:
    own = tuple(view for view in findings if target.name in view.located.where)
    leading = next(
        (
            view
            for view in own
            if target.leading and str(view.located.finding) == str(target.leading)
        ),
        None,
    )
    drawn = (
        *(measure(record, target) for measure in MEASURES),
        latency_measure(bench, target.name),
    )
    plan = target.plan
    modules = plan.modules if plan is not None else ()
    low = (
        plan.precision.default
        if plan is not None and isinstance(plan.precision, LowPrecision)
        else "fewer bits"
    )
    bindings = tuple(file for file in target.files if _BINDINGS.fullmatch(PurePosixPath(file).name))
    return TargetView(
        target=target,
        anchor=anchor,
        evidence=evidence_of(target),
        why_simulated=_why_simulated(target),
        measures=tuple(figure for figure in drawn if figure is not None),
        leading=leading,
        findings=own,
        path=cause_path(target),
        verifications=_verification_views(target),
        headroom=headroom_plot(modules, plan.precision.default)
        if plan is not None and isinstance(plan.precision, LowPrecision)
        else None,
        rounds=_search(plan.rounds if plan is not None else (), own),
        kept=tuple(
            (row, _why_kept(row, low)) for row in modules if row.float32 or row.float32_weights
        ),
        low=low,
        models=tuple(file for file in target.files if file not in bindings),
        bindings=bindings,
        logs=_logs(record, target),
        graph=any(PurePosixPath(file).name == _GRAPH for file in target.files),
    )


def _why_simulated(target: TargetReport) -> str | None:
    """Return why a target is simulated although its device is here; None for all others.

    The same as decides in the stage that verifies a graph in 16 bits on a CPU.
    """
    dtype = target.precision.split(",")[0]
    ran_on = [name for each in target.verifications for name in each.providers]
    here = target.device == "cpu" and bool(ran_on) and all(n.startswith("CPU") for n in ran_on)
    if "simulated" not in evidence_of(target) or dtype not in ("float16", "bfloat16") or not here:
        return None
    return f"a CPU's kernels compute {dtype} in float32, so its rounding is simulated"


def _why_kept(row: ModulePrecision, dtype: str) -> str:
    """Return why a module stays in float32: first its largest value and what the type holds, which
    is the reason if that value is beyond it, then what in the recipe names the module.
    """
    named = "; ".join(row.reasons)
    if row.headroom is None:
        return named
    limit = magnitude_text(row.headroom * row.largest)
    reach = f"reaches {magnitude_text(row.largest)} in case {row.case}"
    beyond = "is beyond" if row.headroom < 1 else "is within"
    return f"{reach}, which {beyond} the {limit} that {dtype} holds ({named})"


def _logs(record: RunRecord, target: TargetReport) -> tuple[str, ...]:
    """Return the logs of a target's stages; of a broken target those that broke, shared ones too,
    come first.
    """
    broken = [
        stage.log
        for stage in record.stages
        if stage.status == "broken" and stage.target in (None, target.name)
    ]
    own = [stage.log for stage in stages_of(record, target.name) if stage.status != "blocked"]
    first = broken if target.status == "broken" else []
    return tuple(dict.fromkeys(log for log in (*first, *own) if log is not None))


def _search(rounds: tuple[PlanRound, ...], own: tuple[FindingView, ...]) -> SvgFigure | None:
    """Return the search for what to keep in float32, unless a finding of the target shows it."""
    shown = any(search_plot(view.located.finding) is not None for view in own)
    return None if shown else rounds_plot(rounds)


def _verification_views(target: TargetReport) -> tuple[VerificationView, ...]:
    views = []
    for verification in target.verifications:
        plots = output_plots(verification)
        alone = len(plots) == 1 and len(target.verifications) == 1
        views.append(VerificationView(verification, () if alone else tuple(plots)))
    return tuple(views)


def sentence(record: RunRecord) -> str:
    """Return the verdict of a run in one sentence; it never hides what rests on a simulation."""
    named = {
        status: [target.name for target in record.targets if target.status == status]
        for status in ("failed", "broken", "waived", "unproven", "skipped", "verified")
    }
    total = len(record.targets)
    of_all, noun = f" of {total}", "targets"
    parts = []
    for status, verb in (
        ("broken", "could not be built or verified"),
        ("failed", "failed verification"),
        ("waived", "failed with every error waived"),
        ("unproven", "would have passed with a wrong model, too"),
        ("skipped", "was skipped" if len(named["skipped"]) == 1 else "were skipped"),
    ):
        if names := named[status]:
            if total == 1:
                return f"The target '{names[0]}' {verb}."
            who = f"{len(names)}{of_all} {noun} {verb}"
            if len(names) == total:
                who = _all_of(status, total, verb)
            parts.append(f"{who}: {_listed(names)}")
            of_all, noun = "", ""
    if named["verified"]:
        matching = _matching(record, named["verified"], total)
        parts = [*parts, matching] if parts else [matching]
    return f"{'; '.join(' '.join(part.split()) for part in parts) or 'No target was built'}."


def _all_of(status: str, total: int, verb: str) -> str:
    """Return what all targets of a run have in common; "all could not" would mean "some could"."""
    if status == "broken":
        who = "Neither target" if total == 2 else f"None of {total} targets"
        return f"{who} could be built or verified"
    return f"{'Both' if total == 2 else f'All {total}'} targets {verb}"


def _matching(record: RunRecord, names: list[str], total: int) -> str:
    by_name = {target.name: target for target in record.targets}
    simulated = [name for name in names if "simulated" in evidence_of(by_name[name])]
    who = {1: "The target", 2: "Both targets"}.get(total, f"All {total} targets")
    if len(names) < total:
        who = str(len(names))
    what = _proven([by_name[name] for name in names], one=len(names) == 1)
    how = ""
    if len(simulated) == len(names):
        how = ", in simulation only"
    elif simulated:
        ran = len(names) - len(simulated)
        how = f": {ran} on the device, {len(simulated)} in simulation only ({_listed(simulated)})"
    return f"{who} {what}{how}"


def _proven(targets: list[TargetReport], *, one: bool) -> str:
    """Return what verified targets do, by what decided: the tolerance, the task metric, or both."""
    decided = {each.decided_by for target in targets for each in target.verifications}
    match, keep = ("matches", "keeps") if one else ("match", "keep")
    if decided == {"task metric"}:
        return f"{keep} the original's score on the task"
    agreement = f"{match} the original within the tolerance"
    return (
        agreement
        if "task metric" not in decided
        else f"{agreement} or {keep} its score on the task"
    )


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    shown = names if more <= 1 else names[:_NAMED]
    return ", ".join(f"'{name}'" for name in shown) + (f" and {more} more" if more > 1 else "")

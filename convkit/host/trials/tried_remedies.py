"""Gives failed float32 targets an owner and a remedy that was tried.

A target whose graph another target or release of the run computes right, or whose runtime's kernels
a search has blamed, is tried with what separates owners: other releases of its runtime, other ways
through it, another opset. The findings then say what each showed. Nothing is tried twice in a run.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence

from convkit.host.plan.stages import export_id, reference_id
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.keys.recipe import target_key
from convkit.host.record.run_record import TargetReport, Verification
from convkit.host.stages.stage_outcome import Settled
from convkit.host.toolchain.versions.stage_requirements import environment_spec
from convkit.host.trials.experiment_findings import (
    BLAMES_GRAPH,
    NO_KERNEL,
    REFUSED,
    at_part,
    of_failed_run,
    with_experiments,
)
from convkit.host.trials.fault_owner import Experiment, Kind, owner_of, same_file_right
from convkit.host.trials.recipe_trials import Change, Laboratory, Trial, outcome_of, written
from convkit.host.trials.release_candidates import other_releases
from convkit.host.trials.smallest_part import found_part, part_request, target_versions
from convkit.protocol.errors import ConvkitError, Interrupted
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ReferenceResult
from convkit.protocol.runtimes.runtime_registry import runtimes

# Seconds for all trials of a run, and for those of one target; and of the stages that a trial runs
# again, above which it is left out.
_SECONDS, _OF_TARGET, _SLOW = 60.0, 45.0, 20.0
# Seconds after those of all trials, by which the smallest part of a refused graph is found.
_SMALLEST = 30.0
# Opsets in which kernels that were mended took over: the other one is tried.
_OPSETS = (20, 18)
# Findings of a place in what a runtime computes, and of one that does not run what it loaded.
_PLACES, _FAILED = ("N408", "N401"), "E206"


class TriedRemedies:
    """The trials of one run."""

    def __init__(self, laboratory: Laboratory, listener: Listener) -> None:
        self._laboratory, self._listener = laboratory, listener
        self._deadline = time.monotonic() + _SECONDS
        self._known: dict[tuple[str, str], Trial] = {}

    def added(
        self, settled: Mapping[str, Settled], targets: Sequence[TargetReport]
    ) -> dict[str, Settled]:
        """Return the stages, with owners and tried remedies in the findings of those that failed.

        Raises Interrupted.
        """
        changed = dict(settled)
        for target in targets:
            for verification in target.verifications:
                for stage in (f"build:{target.name}", verification.stage):
                    found = self._of_stage(changed, stage, target, verification, targets)
                    if found is not None:
                        changed[stage] = found
        return changed

    def _of_stage(
        self,
        settled: Mapping[str, Settled],
        stage: str,
        target: TargetReport,
        verification: Verification,
        targets: Sequence[TargetReport],
    ) -> Settled | None:
        """Return a stage with its finding rewritten; None if there is nothing to try."""
        owner = self._laboratory.loaded.recipe.targets[target.name]
        if target.status not in ("failed", "broken") or verification.status == "verified":
            return None
        findings = settled[stage].report.findings
        elsewhere = (
            [] if owner.rewrites else self._elsewhere(settled, target, verification, targets)
        )
        subject = next(
            (
                each
                for each in findings
                if (
                    _of_precision(each, target.name)
                    if owner.rewrites
                    else _is_subject(each, elsewhere, target.name)
                )
            ),
            None,
        )
        if subject is None and stage == verification.stage and not owner.rewrites:
            failed = (each for each in verification.findings if each.code == _FAILED)
            subject = next(failed, None)
        if subject is None:
            return None
        release = self._release(settled, target, verification)
        tried = self._tried(settled, target, verification, subject, elsewhere)
        experiments = [*elsewhere, *tried]
        named = f"{target.runtime} {release}" if release is not None else target.runtime
        is_valid = self._laboratory.loaded.recipe.model.onnx is not None
        rewritten = with_experiments(subject, experiments, named, is_valid=is_valid)
        if subject.code == REFUSED:
            rewritten = self._with_part(settled, target, verification, rewritten)
        if subject.code == _FAILED:  # a verdict's, which follows from what the trials showed
            if owner_of(experiments) is None:
                return None
            replaced = (of_failed_run(rewritten, named), *findings)
        else:
            replaced = tuple(rewritten if each is subject else each for each in findings)
        report = dataclasses.replace(settled[stage].report, findings=replaced)
        return dataclasses.replace(settled[stage], report=report)

    def _with_part(
        self,
        settled: Mapping[str, Settled],
        target: TargetReport,
        verification: Verification,
        finding: Finding,
    ) -> Finding:
        """Return the finding of a refused graph at the smallest part that is refused by itself."""
        laboratory, store = self._laboratory, self._laboratory.store
        loaded = laboratory.loaded
        graph, runtime = export_id(loaded.recipe, target.name), runtimes()[target.runtime]
        seconds = self._deadline + _SMALLEST - time.monotonic()
        if graph is None or runtime.reproducer is None or seconds <= 0:
            return finding
        artifacts = {
            name: settled[name].report.artifact for name in (graph, reference_id(loaded.recipe))
        }
        with store.staging() as scratch:
            (scratch / "output").mkdir()
            try:
                request = part_request(
                    loaded,
                    laboratory.home,
                    target.name,
                    finding,
                    {
                        name: store.view(each)
                        for name, each in artifacts.items()
                        if each is not None
                    },
                    case=finding.place.case or _first_case(settled[reference_id(loaded.recipe)]),
                    versions=target_versions(
                        loaded,
                        (each.report for each in settled.values()),
                        target.name,
                        verification.version,
                    ),
                )
                part = found_part(
                    dataclasses.replace(request, refused=True),
                    loaded,
                    laboratory.home,
                    laboratory.toolchain,
                    scratch,
                    target.name,
                    lambda said: self._listener.stage_progress(verification.stage, said, None),
                    seconds=seconds,
                    cancelled=laboratory.cancelled,
                )
            except Interrupted:
                raise
            except ConvkitError:
                return finding
        return at_part(finding, part)

    def _elsewhere(
        self,
        settled: Mapping[str, Settled],
        target: TargetReport,
        verification: Verification,
        targets: Sequence[TargetReport],
    ) -> list[Experiment]:
        """Return what the run itself shows: the same graph, verified by other targets."""
        recipe = self._laboratory.loaded.recipe
        graph = export_id(recipe, target.name)
        found = []
        for other in targets:
            same_graph = graph is not None and export_id(recipe, other.name) == graph
            if not same_graph or recipe.targets[other.name].rewrites:
                continue
            for each in other.verifications:
                if each.stage == verification.stage or each.status != "verified":
                    continue
                release = self._release(settled, other, each)
                what = f"{other.runtime} {release}" if release else other.runtime
                trial = outcome_of(
                    dataclasses.replace(other, status="verified", verifications=(each,))
                )
                same = other.runtime == target.runtime
                found.append(
                    Experiment(
                        "other_release" if same else "other_runtime",
                        f"{what} ({other.name})" if other is not target else what,
                        trial.outcome,
                        trial.cases,
                        trial.largest,
                        self._with_release(target, verification, release) if same else {},
                    )
                )
        return found

    def _with_release(
        self, target: TargetReport, verification: Verification, release: str | None
    ) -> Change:
        """Return the change that serves a target with another release of its runtime."""
        if release is None or self._laboratory.toolchain == "host":
            return {}
        wanted = f"=={'.'.join(release.split('.')[:2])}.*"
        place = target_key(target.name)
        if verification.version is not None:
            return {f"{place}.versions": [wanted]}
        content = self._laboratory.loaded.document.content["targets"][target.name]
        return {f"{place}.tools": {**_tools(content), self._package(target.name): wanted}}

    def _release(
        self, settled: Mapping[str, Settled], target: TargetReport, verification: Verification
    ) -> str | None:
        """Return the release of a runtime's own package that a verification ran, or the build."""
        package = self._package(target.name)
        for stage in (verification.stage, f"build:{target.name}"):
            versions = settled[stage].report.versions
            if package in versions:
                return versions[package]
        return None

    def _package(self, target: str) -> str:
        owner = self._laboratory.loaded.recipe.targets[target]
        return owner.packages("verify", stand_in=False)[0]

    def _tried(
        self,
        settled: Mapping[str, Settled],
        target: TargetReport,
        verification: Verification,
        subject: Finding,
        known: Sequence[Experiment],
    ) -> Iterator[Experiment]:
        """Yield what is tried with a target, until something is right; a release that is `known`
        to be is not tried again.
        """
        own = (f"precision:{target.name}", f"build:{target.name}", verification.stage)
        again = sum(settled[stage].report.seconds for stage in own if stage in settled)
        recipe = self._laboratory.loaded.recipe
        deadline = min(self._deadline, time.monotonic() + _OF_TARGET)
        known_kinds = {each.kind for each in known if each.outcome == "right" and each.change}
        release = self._release(settled, target, verification)
        is_refused = subject.code in (REFUSED, _FAILED)
        candidates = self._candidates(target, verification, release, is_refused=is_refused)
        if (offered := _offered(subject, target.name)) is not None:
            owner = self._laboratory.loaded.recipe.targets[target.name]
            kind: Kind = "other_precision" if owner.rewrites else "other_route"
            changes = [offered, *_wider(subject, offered)]
            if (quantized := owner.quantization) is not None:
                place = f"{target_key(target.name)}.precision"
                changes = [
                    *({place: each} for each in quantized.with_room()),
                    *changes,
                    *({place: each} for each in quantized.with_other_ranges()),
                ]
            candidates = iter([(kind, written(each), each) for each in changes])
        for kind, what, change in candidates:
            if kind in known_kinds:
                continue
            key = (target.name, str(sorted(change.items())))
            if key not in self._known:
                wanted = again
                if kind == "other_opset" and (graph := export_id(recipe, target.name)) is not None:
                    wanted += settled[graph].report.seconds
                if wanted > min(_SLOW, deadline - time.monotonic()):
                    self._known[key] = Trial("untried", why="it takes too long for a run")
                else:
                    self._listener.stage_progress(verification.stage, f"trying {what}", None)
                    self._known[key] = self._laboratory.trial(target.name, change)
            trial = self._known[key]
            yield Experiment(
                kind, what, trial.outcome, trial.cases, trial.largest, change, trial.why
            )
            if trial.outcome == "right":
                return

    def _candidates(
        self,
        target: TargetReport,
        verification: Verification,
        release: str | None,
        *,
        is_refused: bool,
    ) -> Iterator[tuple[Kind, str, Change]]:
        """Yield changes of the recipe: the kind of the experiment, its name, and the change."""
        laboratory = self._laboratory
        recipe = laboratory.loaded.recipe
        if recipe.part_name is not None:
            return  # its recipe is a part of a text
        content = laboratory.loaded.document.content["targets"][target.name]
        place = target_key(target.name)
        for change in type(recipe.targets[target.name]).alternatives(
            content, is_refused=is_refused
        ):
            named = {f"{place}.{name}": value for name, value in change.items()}
            kind: Kind = "fewer_fusions" if "optimization" in change else "other_route"
            yield kind, written(named), named
        if export_id(recipe, target.name) is not None and recipe.model.onnx is None:
            own = "export" in content
            key = f"{place}.export.opset" if own else f"{place}.export"
            settings = recipe.export_of(target.name)
            opset = next(each for each in _OPSETS if each != settings.opset)
            whole = settings.model_dump(exclude_unset=True) | {"opset": opset}
            yield "other_opset", f"opset: {opset}", {key: opset if own else whole}
        if release is None or laboratory.toolchain == "host":
            return
        package = self._package(target.name)
        spec = environment_spec(recipe, "verify", target.name, verification.version)
        for other in other_releases(spec, package, release, laboratory.home.root):
            change = self._with_release(target, verification, other)
            yield "other_release", f"{package} {other}", change


def _first_case(reference: Settled) -> str | None:
    cases = reference.result.cases if isinstance(reference.result, ReferenceResult) else ()
    return next((each.name for each in cases if each.kind == "ladder"), None)


def _tools(content: Mapping[str, Json]) -> dict[str, Json]:
    tools = content.get("tools")
    return dict(tools) if isinstance(tools, Mapping) else {}


def _is_subject(finding: Finding, elsewhere: Sequence[Experiment], target: str) -> bool:
    """Say whether a finding's owner can be told by trials, or its remedy be tried, and it has no
    proven remedy yet, or one that a change of the recipe would be better than.
    """
    is_fallback = finding.evidence.get("fallback") is True
    if finding.remedy is not None and finding.remedy.proven and not is_fallback:
        return False
    if "instead" in finding.evidence:  # tried on the case's values, which costs no run
        return False
    if finding.code == BLAMES_GRAPH:
        return same_file_right(elsewhere) is not None
    if finding.code in _PLACES and finding.evidence.get("owner") in ("kernel", "fusion"):
        return True
    return finding.code in (REFUSED, NO_KERNEL) or (
        finding.is_error and _offered(finding, target) is not None
    )


def _of_precision(finding: Finding, target: str) -> bool:
    """Say whether a finding offers another precision that nobody has tried."""
    change = _offered(finding, target)
    remedy = finding.remedy
    untried = remedy is not None and not remedy.proven and not remedy.tried
    return untried and change is not None and set(change) <= _precision_keys(target, change)


def _precision_keys(target: str, change: Change) -> set[str]:
    place = f"{target_key(target)}.precision"
    return {name for name in change if name == place or name.startswith(f"{place}.")}


def _wider(finding: Finding, offered: Change) -> list[Change]:
    """Return a change that keeps in float32 what surrounds the modules of an offered one, too."""
    wider = finding.evidence.get("with_surrounding")
    if not isinstance(wider, list) or len(offered) != 1 or wider in offered.values():
        return []
    return [dict.fromkeys(offered, wider)]


def _offered(finding: Finding, target: str) -> Change | None:
    """Return the change that a finding's remedy offers, if it concerns the target alone."""
    change = finding.remedy.change if finding.remedy is not None else {}
    own = f"{target_key(target)}."
    return dict(change) if change and all(name.startswith(own) for name in change) else None

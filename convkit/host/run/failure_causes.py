"""Why targets failed: searches each exported graph for the place where it diverges from its
original.

Runs once per graph and case after the plan, only if a target failed for no known reason, in an
environment that has both the original's libraries and onnxruntime. For a low precision, the values
whose rounding matters are searched for first, in the environment of its precision stage. A runtime
that converts the model itself searches its own program, in the environment of its builds; for a
lower precision as well, because a conversion that is wrong in float32 is not a problem of the
precision.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from convkit.host.facts.planning_facts import ResolvedFacts
from convkit.host.findings.consequences import cause_of
from convkit.host.home import Home
from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_requests import limits_by_output, original_of, source_of
from convkit.host.plan.stages import export_id, reference_id, verify_id
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.processes.progress_events import Listener
from convkit.host.processes.request_locations import Locations
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import TargetReport, Verification
from convkit.host.run.search_environments import Search, SearchEnvironments, converts_itself
from convkit.host.stages.runner_findings import addressed_report
from convkit.host.stages.stage_outcome import Settled
from convkit.host.store.store import Store
from convkit.host.verdict.cases_to_explain import most_informative_case, unusual_cases, worst_case
from convkit.host.verdict.cause_preference import without_guesses
from convkit.host.verdict.findings.unreachable_limits import CODE as _OUT_OF_REACH
from convkit.host.verdict.float32_resolution import RESOLVED, explains
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json, decode, encode
from convkit.protocol.messages import (
    PROTOCOL,
    Answer,
    DiagnoseRequest,
    Envelope,
    LowPrecision,
    RoundingRequest,
    RoundingResult,
    is_step,
)
from convkit.protocol.runtimes.runtime_registry import runtimes

_NOT_SEARCHED = "E216"
# Problems of a file that is already in low precision are explained by that precision.
_PRECISION = "N2"
# Findings that a graph's results are wrong, without a cause.
_UNEXPLAINED = ("N101", "N102", "N402", "E206")
# The error is at padding alone, where any two kernels differ: by 2e-5 for a BERT in float32. Only
# what differs by more than this share of the output's rms may have a place in the graph.
_AT_PADDING, _MORE_THAN_KERNELS = "N506", 1e-3

# Seconds of the clock that all searches of a run take together, from the first on, and what each
# has at least.
_OF_RUN, _AT_LEAST = 60.0, 10.0
# The original differs from itself, so nothing that the graph computes is a cause.
_UNSTEADY = "N303"
# A search ends by itself long before; what hangs in a library's code does not.
_SEARCH_SECONDS = 1800.0


class Progress(Protocol):
    """Reports what a search does, and how much of it is done."""

    def __call__(self, message: str, done: float | None = None) -> None: ...


@dataclasses.dataclass(frozen=True)
class Causes:
    """Searches for causes within one run."""

    loaded: LoadedRecipe
    surroundings: ResolvedFacts
    home: Home
    store: Store
    listener: Listener
    cancelled: threading.Event
    begun: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def _seconds(self) -> float:
        """How long the next search may take."""
        return max(_AT_LEAST, self.begun + _OF_RUN - time.monotonic())

    def added(
        self, settled: Mapping[str, Settled], targets: tuple[TargetReport, ...]
    ) -> dict[str, Settled]:
        """Return the stages, with the causes added to the findings of failed verifications."""
        known: dict[tuple[str, ...], tuple[Finding, ...]] = {}
        changed = dict(settled)
        for target in targets:
            for verification in target.verifications:
                case = self._case(target.name, verification)
                if case is None:
                    continue
                stage = settled[verify_id(target.name, verification.version)]
                causes, is_rounding = self._rounding(settled, target, verification)
                release = self._environments.release_of(stage)
                for search in () if is_rounding else self._searches(target.name, release):
                    found = self._found(settled, known, search, case, verification)
                    causes = (*causes, *self._environments.of_runtime(target.name, search, found))
                    if any(finding.code != _NOT_SEARCHED for finding in causes):
                        break
                findings = without_guesses((*causes, *stage.report.findings), self.loaded.recipe)
                report = dataclasses.replace(stage.report, findings=tuple(findings))
                report = addressed_report(report, self.loaded.path)
                changed[stage.report.id] = dataclasses.replace(stage, report=report)
        return changed

    def _found(
        self,
        settled: Mapping[str, Settled],
        known: dict[tuple[str, ...], tuple[Finding, ...]],
        search: "Search",
        case: str,
        verification: Verification,
    ) -> tuple[Finding, ...]:
        """Return what a search finds; `known` are the results so far. Rounding is no cause if the
        built model is further off than that.
        """
        unusual = unusual_cases(verification)
        for cases in (unusual, ()) if unusual else ((),):
            key = (search.subject, search.release or "", case, *cases)
            if key not in known:
                known[key] = self._run(settled, search, case, cases, verification.stage)
            if not any(finding.code == RESOLVED for finding in known[key]):
                break
            if explains(known[key], verification.cases):
                break
        return known[key]

    def _case(self, name: str, verification: Verification) -> str | None:
        """Return a case on which a target failed for no known reason: its precision is one, unless
        its runtime converts the model itself, and nothing has shown that float32 would be right.
        """
        target = self.loaded.recipe.targets[name]
        explained = any(f.is_error and f.code.startswith(_PRECISION) for f in verification.findings)
        if (
            verification.status not in ("failed", "waived")
            or target.quantization is not None
            or (
                explained
                and not (target.low_precision and converts_itself(self.loaded.recipe, name))
            )
            or any(cause_of(finding) == _OUT_OF_REACH for finding in verification.findings)
            or any(_is_of_kernels(finding) for finding in verification.findings)
            or any(f.is_error and f.code == _UNSTEADY for f in verification.findings)
            or not any(finding.code in _UNEXPLAINED for finding in verification.findings)
        ):
            return None
        # A call of a loop is off by what the calls before it fed to it, too.
        alone = [case for case in verification.cases if not is_step(case.case)]
        off = [case for case in alone if not case.passed]
        compared = [
            case
            for case in off
            if case.error is None and not any(o.metrics.undefined for o in case.outputs)
        ]
        return most_informative_case(compared) or next((case.case for case in off), None)

    def _converts_itself(self, name: str) -> bool:
        return converts_itself(self.loaded.recipe, name)

    @property
    def _environments(self) -> SearchEnvironments:
        return SearchEnvironments(self.loaded.recipe, self.surroundings, self.home)

    def _searches(self, target: str, release: str | None) -> "Iterator[Search]":
        """Yield the searches for a target, until a cause is found: its graph, which other targets
        share, then its runtime's built model if the runtime has its own search.
        """
        graph = export_id(self.loaded.recipe, target)
        # An ONNX file as the original records no operations.
        if graph is not None and self.loaded.recipe.reference_model.onnx is None:
            own = self.loaded.recipe.model.onnx is None
            exporter = self.loaded.recipe.export_of(target).exporter if own else None
            yield Search(graph, graph, exporter=exporter, release=release)
        runtime = runtimes()[self.loaded.recipe.targets[target].runtime]
        if runtime.module_of("diagnose") is not None:
            yield Search(f"build:{target}", graph, target, runtime)

    def _run(
        self,
        settled: Mapping[str, Settled],
        search: "Search",
        case: str,
        unusual: tuple[str, ...],
        stage: str,
    ) -> tuple[Finding, ...]:
        progress = self._progress(stage)
        try:
            python = self._environments.of_search(search, progress)
            request = self._request(settled, search, case, unusual)
        except ConvkitError as error:
            return (_not_searched(str(error), case),)
        answer = self._answer(
            python, search.envelope, request, progress, exports=search.exporter is not None
        )
        return (_not_searched(answer, case),) if isinstance(answer, str) else answer.findings

    def _rounding(
        self, settled: Mapping[str, Settled], report: TargetReport, verification: Verification
    ) -> tuple[tuple[Finding, ...], bool]:
        """Return the values whose rounding makes a target miss its limits, and whether rounding is
        why it does, be it that of all values together.
        """
        recipe, facts = self.loaded.recipe, self.surroundings
        target = recipe.targets[report.name]
        graph = export_id(recipe, report.name)
        if target.low_precision is None or graph is None:
            return (), False
        limits = limits_by_output(recipe, target)
        case = worst_case(verification.cases, limits)
        if case is None:
            return (), False
        needed = (graph, reference_id(recipe))
        views = {name: self.store.view(settled[name].report.artifact or "") for name in needed}
        places = Locations(self.loaded, self.home, views, facts.facts.texts)
        exported, reference = (places.artifact(stage) or "" for stage in needed)
        precision = precision_as_built(report) or target.low_precision.for_worker(places.file)
        request = RoundingRequest(contract_of(recipe), exported, reference, case, precision, limits)
        progress = self._progress(verification.stage)
        try:
            python = self._environments.of_precision(report.name, progress)
        except ConvkitError as error:
            return (_not_searched(str(error), case),), False

        def envelope(output: str, encoded: Json) -> Envelope:
            return Envelope(PROTOCOL, "rounding", output, encoded)

        answer = self._answer(python, envelope, request, progress, exports=False)
        if isinstance(answer, str):
            return (_not_searched(answer, case),), False
        result = decode(RoundingResult, answer.result)
        return answer.findings, result.float32 is not None and result.float32 <= 1

    def _progress(self, stage: str) -> Progress:
        def progress(message: str, done: float | None = None) -> None:
            self.listener.stage_progress(stage, message, done)

        return progress

    def _answer(
        self,
        python: Path,
        envelope: Callable[[str, Json], Envelope],
        request: DiagnoseRequest | RoundingRequest,
        progress: Progress,
        *,
        exports: bool,
    ) -> Answer | str:
        """Run a search in a worker; return why there is none if it did not finish."""
        seconds = min(self.loaded.recipe.verify.timeout, _SEARCH_SECONDS)
        with self.store.staging() as folder:
            output = folder / "output"
            output.mkdir()
            outcome = run_worker(
                python,
                dataclasses.replace(
                    envelope(str(output), encode(request)),
                    custom_ops=custom_ops_of(
                        self.loaded.recipe,
                        Locations(self.loaded, self.home, {}, ()),
                        exports=exports,
                    ),
                ),
                folder,
                workers=WORKERS[self.surroundings.facts.toolchain],
                timeout_seconds=seconds,
                on_event=progress,
                cancelled=self.cancelled,
            )
        answer = outcome.answer
        if outcome.ending == "timed_out":
            return f"it was stopped after {seconds:g} s"
        if answer is None or answer.outcome != "done":
            return outcome.why
        return answer

    def _request(
        self, settled: Mapping[str, Settled], search: "Search", case: str, unusual: tuple[str, ...]
    ) -> DiagnoseRequest:
        recipe = self.loaded.recipe
        built = search.subject if search.target is not None else None
        needed = [name for name in (search.graph, reference_id(recipe), built) if name is not None]
        views = {name: self.store.view(settled[name].report.artifact or "") for name in needed}
        lines = self.surroundings.facts.texts
        places = Locations(self.loaded, self.home, views, lines)
        request = DiagnoseRequest(
            source_of(recipe.reference_model, places),
            contract_of(recipe),
            places.artifact(search.graph) if search.graph is not None else None,
            places.artifact(reference_id(recipe)),
            case,
            # What convkit exported itself it traced on an example, which this draws again.
            original=original_of(recipe, places) if recipe.model.onnx is None else None,
            exporter=search.exporter,
            unusual=unusual,
            seconds=self._seconds,
        )
        if search.target is None or built is None:
            return request
        target = recipe.targets[search.target]
        return dataclasses.replace(
            request,
            limits=limits_by_output(recipe, target) if target.low_precision is not None else {},
            built=places.artifact(built),
            options=encode(target.options()),
        )


def precision_as_built(report: TargetReport) -> LowPrecision | None:
    """Return a target's precision with the modules that `auto` keeps in float32; None without a
    plan.
    """
    found = report.plan.precision if report.plan is not None else None
    return found if isinstance(found, LowPrecision) else None


def _not_searched(why: str, case: str) -> Finding:
    return Finding(
        _NOT_SEARCHED,
        f"convkit could not search for the cause of the difference: {why}",
        Place(case=case),
        remedy=Remedy("See the message; the verdict does not depend on the search.", refers=True),
    )


def _is_of_kernels(finding: Finding) -> bool:
    """Say whether an error at padding alone is small enough for two right kernels."""
    error = finding.evidence.get("nrmse")
    small = not isinstance(error, float) or error <= _MORE_THAN_KERNELS
    return finding.code == _AT_PADDING and small

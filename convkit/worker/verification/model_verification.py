"""How any built model is verified: every case, probe and invariance check. Measures only; the host
decides the verdict.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    EvaluationMetrics,
    Fallback,
    FamilyMetrics,
    Layout,
    OmittedCase,
    ProductFamily,
    ReferenceResult,
    SimulatedCase,
    TensorMetrics,
    VerifyRequest,
    VerifyResult,
)
from convkit.worker.building.built_files import refused
from convkit.worker.cases.case_files import read_cases
from convkit.worker.cases.time_budget import Budget
from convkit.worker.job_context import Context
from convkit.worker.metrics.lost_information import collapse_findings
from convkit.worker.metrics.open_order import open_order_findings
from convkit.worker.original.contract_check import check_contract
from convkit.worker.runtime_interface.sessions import ModelRefusedError, Runnable, RuntimeSession
from convkit.worker.steps.built_steps import BuiltSteps, LoopReader
from convkit.worker.steps.verified_steps import StepResults, run_loops
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.fixed_axes import fixed_axes
from convkit.worker.verification.preparation_cause import preparation_cause
from convkit.worker.verification.rows_beside_others import drowned_rows

# Below this cosine similarity, an output has diverged, whatever its tolerance.
DIVERGED = 0.99


@dataclasses.dataclass(frozen=True)
class Opened:
    """A loaded built model. `contract` is its actual contract, `declared` the expected one."""

    session: RuntimeSession
    contract: Contract
    declared: Contract


class Families(Protocol):
    """The families of processors that a quantized model must be right on."""

    @property
    def own(self) -> ProductFamily:
        """The family of this machine."""
        ...

    @property
    def differ(self) -> bool:
        """False if both families compute the same."""
        ...

    @property
    def matters(self) -> bool:
        """True if the model must be right on the other family, too."""
        ...

    def measure_other(
        self, cases: Sequence[CaseRecord], found: Contract, context: Context, layout: Layout
    ) -> tuple[Runnable, FamilyMetrics]:
        """Run the ladder as the other family would; return what ran it, too."""
        ...

    def explain(
        self,
        own: Sequence[CaseMetrics],
        other: Sequence[CaseMetrics],
        verification: BuiltModel,
        context: Context,
    ) -> list[Finding]:
        """Explain why one family's results are worse than the other's, if they are."""
        ...


class Subject(Protocol):
    """A built model to verify, with its runtime's explanations."""

    @property
    def evidence(self) -> Literal["device", "simulated"]:
        """The evidence for the session's results."""
        ...

    @property
    def suspected(self) -> Sequence[Finding]:
        """Reasons why the runtime may reject the model, known before loading it."""
        ...

    def open(self, context: Context) -> Opened:
        """Load the model; raises ModelRefusedError."""
        ...

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Explain wrong results, if any."""
        ...

    def simulation(self) -> RuntimeSession | None:
        """Return the simulation to compare with a device's results; None if there is none."""
        ...


def verify(
    request: VerifyRequest, subject: Subject, context: Context, families: Families | None = None
) -> tuple[VerifyResult, list[Finding]]:
    """Load the built model once, run every case by name, and measure each declared output against
    the reference. `families` runs the ladder again as another family of processors would; wrong
    results are then explained by those of the family whose products are exact.

    A case that fails records the runtime's message and does not stop the others. If the runtime
    rejects the model, returns E205 and no cases. Raises StageSkippedError without the device.
    """
    reference = read_cases(Path(request.reference))
    context.progress("loading the built model")
    try:
        opened = subject.open(context)
    except ModelRefusedError as error:
        return _nothing_ran(subject, reference), refused(error, subject.suspected)
    findings = check_contract(opened.declared, opened.contract, "session")
    session = opened.session
    verification = BuiltModel(request, session, opened.contract, context, reference.layout)
    cases, omitted_cases = verification.ladder(_of_kind("ladder", reference))
    probes = verification.probes(_of_kind("probe", reference))
    invariance, omitted_checks = verification.invariance(_of_kind("invariance", reference))
    sizes = {case.name: case.sizes for case in reference.cases}
    findings += fixed_axes(request.contract, cases, sizes, verification.feeds, session.run)
    looped = _loops(request, reference, opened, context)
    fallbacks = session.fallbacks()
    findings += [_fallback_finding(fallback, session.providers[0]) for fallback in fallbacks]
    findings += open_order_findings(verification.open_orders)
    findings += drowned_rows(request.contract, reference.layout.rows, cases, verification)
    collapsed = collapse_findings(verification.spreads)
    findings += preparation_cause(
        request.contract, session.run, cases, verification.feeds, verification.expected
    )
    other: FamilyMetrics | None = None
    exact: Sequence[CaseMetrics] = cases
    own = families.own if families is not None and families.differ else None
    if families is not None and families.differ and families.matters:
        ladder = _of_kind("ladder", reference)
        simulated, other = families.measure_other(
            ladder, opened.contract, context, reference.layout
        )
        other = dataclasses.replace(other, evaluation=_score(request, simulated, context))
        findings += families.explain(cases, other.cases, verification, context)
        exact = cases if own == "exact" else other.cases
    context.progress("looking for what causes the differences")
    explained = subject.explain(exact, collapsed, verification)
    if own is not None:  # what explains exact results says nothing about saturating ones
        explained = [
            dataclasses.replace(finding, evidence={**finding.evidence, "family": "exact"})
            for finding in explained
        ]
    findings += [*explained, *collapsed]
    beside: tuple[SimulatedCase, ...] = ()
    if (simulation := subject.simulation()) is not None:
        context.progress("simulating")
        beside = verification.beside_simulation(simulation, cases)
    result = VerifyResult(
        evidence=subject.evidence,
        session=opened.contract,
        providers=session.providers,
        fallbacks=fallbacks,
        cases=(*cases, *looped.cases),
        omitted=(*omitted_cases, *omitted_checks, *looped.omitted),
        probes=tuple(probes),
        simulated=beside,
        invariance=tuple(invariance),
        trials=tuple(looped.trials),
        greedy=tuple(looped.greedy),
        evaluation=_score(request, session, context),
        results=tuple(verification.results),
        family=own,
        families=(other,) if other is not None else (),
        families_agree=families is not None and not families.differ,
    )
    return result, findings


def _nothing_ran(subject: Subject, reference: ReferenceResult) -> VerifyResult:
    """Return the result of a model that the runtime refused: every case is omitted."""
    omitted = tuple(
        OmittedCase(case.name, "the runtime refused the model") for case in reference.cases
    )
    return VerifyResult(subject.evidence, Contract((), (), ()), (), (), (), omitted, ())


def _score(request: VerifyRequest, session: Runnable, context: Context) -> EvaluationMetrics | None:
    """Score the built model on the rows of `evaluate`, if the recipe has any."""
    if request.evaluation is None:
        return None
    from convkit.worker.evaluate.task_runs import score_built

    return score_built(
        request.evaluation,
        request.contract,
        session.run,
        Path(request.reference),
        lambda message, done: context.progress(message, done=done),
    )


def _loops(
    request: VerifyRequest, reference: ReferenceResult, opened: Opened, context: Context
) -> StepResults:
    """Run the model in loops, if the recipe has steps."""
    if request.steps is None:
        return StepResults()
    built = BuiltSteps(opened.session, opened.contract, request.contract, request.steps)
    reader = LoopReader(Path(request.reference), request.contract, request.steps)
    records = _of_kind("step", reference)
    return run_loops(built, reader, records, Budget(request.budget_seconds), context)


def _of_kind(kind: str, reference: ReferenceResult) -> list[CaseRecord]:
    return [case for case in reference.cases if case.kind == kind]


def first_lost(cases: Sequence[CaseMetrics]) -> str | None:
    """Return the first case in which an output is not finite although the original's is."""
    return next((case.case for case in cases if any(map(_lost_finite, case.outputs))), None)


def first_divergent_case(cases: Sequence[CaseMetrics], collapsed: Sequence[Finding]) -> str | None:
    """Return the first case in which an output has diverged.

    A collapsed output (N304) may still be close to the original's, if it consists mostly of a bias.
    """
    far = (
        case.case for case in cases if any(not output.cosine >= DIVERGED for output in case.outputs)
    )
    return next(far, collapsed[0].place.case if collapsed else None)


def _lost_finite(output: TensorMetrics) -> bool:
    return bool((output.nan_candidate and not output.nan_reference) or output.inf_mismatched)


def _fallback_finding(fallback: Fallback, wanted: str) -> Finding:
    shown = ", ".join(fallback.nodes[:5]) + (", ..." if len(fallback.nodes) > 5 else "")
    return Finding(
        "E102",
        f"{len(fallback.nodes)} nodes ran on {fallback.provider} instead of {wanted}: {shown}",
        Place(node=fallback.nodes[0]),
        {"provider": fallback.provider, "nodes": list(fallback.nodes)},
        Remedy(
            "Check the listed nodes for an operator or element type without a kernel on the device."
        ),
    )

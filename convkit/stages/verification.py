"""How any built model is verified: every case, probe and check of invariance. Measures; judging is
the host's.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from convkit.cases.files import read_cases
from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.collapse import collapse_findings
from convkit.models.contract_check import check_contract
from convkit.stages.built_files import refused
from convkit.stages.built_model import BuiltModel
from convkit.tensors import Contract
from convkit.worker.context import Context
from convkit.worker.protocol import (
    CaseMetrics,
    Fallback,
    OmittedCase,
    SimulatedCase,
    TensorMetrics,
    VerifyRequest,
    VerifyResult,
)
from convkit.worker.sessions import ModelRefusedError, RuntimeSession

# Below this cosine similarity an output has little left of what it was, whatever its tolerance.
ESTRANGED = 0.99


@dataclasses.dataclass(frozen=True)
class Opened:
    """A built model, open. `contract` is what it states, `declared` what it is to state."""

    session: RuntimeSession
    contract: Contract
    declared: Contract


class Subject(Protocol):
    """A built model that is verified, and what its runtime's experts can say of it."""

    @property
    def evidence(self) -> Literal["device", "simulated"]:
        """What the session's results rest on."""
        ...

    @property
    def suspected(self) -> Sequence[Finding]:
        """Why the runtime may refuse the model, known before it is opened."""
        ...

    def open(self, context: Context) -> Opened:
        """Open the model; raises ModelRefusedError."""
        ...

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Say why results are off, if any are."""
        ...

    def simulation(self) -> RuntimeSession | None:
        """Return the simulation to set beside a device's results; None where there is none."""
        ...


def verify(
    request: VerifyRequest, subject: Subject, context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Open the built model once, run every case by name, and measure each declared output against
    the reference.

    A case on which the runtime fails carries its message and does not stop the others. A model that
    the runtime refuses to load gives E205 and no case. Raises StageSkippedError where the device is
    absent.
    """
    reference = read_cases(Path(request.reference))
    context.progress("loading the built model")
    try:
        opened = subject.open(context)
    except ModelRefusedError as error:
        omitted = tuple(
            OmittedCase(case.name, "the runtime refused the model") for case in reference.cases
        )
        nothing = VerifyResult(subject.evidence, Contract((), (), ()), (), (), (), omitted, ())
        return nothing, refused(error, subject.suspected)
    findings = check_contract(opened.declared, opened.contract, "session")
    session = opened.session
    verification = BuiltModel(request, session, opened.contract, context, reference.layout)
    cases, omitted_cases = verification.ladder(
        [case for case in reference.cases if case.kind == "ladder"]
    )
    probes = verification.probes([case for case in reference.cases if case.kind == "probe"])
    invariance, omitted_checks = verification.invariance(
        [case for case in reference.cases if case.kind == "invariance"]
    )
    fallbacks = session.fallbacks()
    findings += [_fallback_finding(fallback, session.providers[0]) for fallback in fallbacks]
    collapsed = collapse_findings(verification.spreads)
    findings += [*subject.explain(cases, collapsed, verification), *collapsed]
    beside: tuple[SimulatedCase, ...] = ()
    if (simulation := subject.simulation()) is not None:
        context.progress("simulating")
        beside = verification.beside_simulation(simulation, cases)
    result = VerifyResult(
        evidence=subject.evidence,
        session=opened.contract,
        providers=session.providers,
        fallbacks=fallbacks,
        cases=tuple(cases),
        omitted=(*omitted_cases, *omitted_checks),
        probes=tuple(probes),
        simulated=beside,
        invariance=tuple(invariance),
    )
    return result, findings


def first_lost(cases: Sequence[CaseMetrics]) -> str | None:
    """Return the first case in which an output is not finite where the original's is."""
    return next((case.case for case in cases if any(map(_lost_finite, case.outputs))), None)


def first_estranged(cases: Sequence[CaseMetrics], collapsed: Sequence[Finding]) -> str | None:
    """Return the first case in which little is left of an output.

    An output that collapsed (N304) may still be near the original's: where a bias is most of it.
    """
    far = (
        case.case
        for case in cases
        if any(not output.cosine >= ESTRANGED for output in case.outputs)
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
            "Look at the nodes: an operator or element type without a kernel on the device runs"
            " elsewhere."
        ),
    )

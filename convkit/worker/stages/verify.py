"""The verify stage: the built model on every case against the reference. Measures; judging is the host's."""

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from convkit.findings.model import Finding, Place, Remedy
from convkit.tensors import Contract
from convkit.worker.cases.calibration import is_usual
from convkit.worker.cases.files import read_cases
from convkit.worker.context import Context
from convkit.worker.contract_check import check_contract
from convkit.worker.kernels.operators import Operators, low_type, read_operators
from convkit.worker.numerics.collapse import collapse_findings
from convkit.worker.numerics.parity_cause import parity_cause
from convkit.worker.precision.decision import decided
from convkit.worker.precision.options import LowPrecision, low_precision
from convkit.worker.protocol import (
    CaseMetrics,
    Fallback,
    OmittedCase,
    SimulatedCase,
    TensorMetrics,
    VerifyRequest,
    VerifyResult,
)
from convkit.worker.quantization.options import Quantization, quantization
from convkit.worker.runtimes.protocol import ModelRefusedError
from convkit.worker.runtimes.registry import runtime_named
from convkit.worker.stages.build import find_model, refused, stated_by_graph, suspected_refusals
from convkit.worker.stages.built_model import BuiltModel


def run(request: VerifyRequest, context: Context) -> tuple[VerifyResult, list[Finding]]:
    """Open the built model once, run every case by name, and measure each declared output against the reference.

    Of a low precision on the CPU the model's simulation is run in its place: the CPU computes most of it in float32.
    A case on which the runtime fails carries its message and does not stop the others. A model that the runtime
    refuses to load gives E205 and no case. Raises StageSkippedError where the device is absent.
    """
    request = dataclasses.replace(request, options=decided(request.options, request.precision))
    runtime = runtime_named(request.runtime)
    model = find_model(Path(request.model), runtime.MODEL_FILE)
    reference = read_cases(Path(request.reference))
    context.progress("loading the built model")
    operators = read_operators(model.parent)
    low = low_precision(request.options) or _as_it_came(operators, request)
    simulated = low is not None and (request.stand_in or request.device == "cpu")
    evidence: Literal["device", "simulated"] = "simulated" if simulated else "device"
    suspected = suspected_refusals(operators, request.device, stand_in=request.stand_in)
    try:
        if low is not None and simulated:
            from convkit.worker.numerics.simulated_session import open_simulation  # onnx-ir is here for it only

            # Where the simulation stands in for a device, the CPU need not have kernels for the type itself.
            contract = (
                stated_by_graph(model)[0]
                if request.stand_in
                else runtime.open(model, request.device, request.options).contract()
            )
            context.progress(f"simulating {low.default}")
            session = open_simulation(model, runtime, request.options, low.default)
        else:
            session = runtime.open(model, request.device, request.options)
            contract = session.contract()
    except ModelRefusedError as error:
        omitted = tuple(OmittedCase(case.name, "the runtime refused the model") for case in reference.cases)
        return VerifyResult(evidence, Contract((), (), ()), (), (), (), omitted, ()), refused(error, suspected)
    findings = check_contract(request.contract, contract, "session")
    verification = BuiltModel(request, session, contract, context, reference.layout)
    cases, omitted_cases = verification.ladder([case for case in reference.cases if case.kind == "ladder"])
    probes = verification.probes([case for case in reference.cases if case.kind == "probe"])
    invariance, omitted_checks = verification.invariance(
        [case for case in reference.cases if case.kind == "invariance"]
    )
    fallbacks = session.fallbacks()
    findings += [_fallback_finding(fallback, session.providers[0]) for fallback in fallbacks]
    collapsed = collapse_findings(verification.spreads)
    if low is not None:
        exported = Path(request.exported) / runtime.MODEL_FILE if request.exported is not None else model
        findings += _precision_findings(exported, low, cases, collapsed, verification)
    quantized = quantization(request.options)
    if quantized is not None and request.exported is not None:
        exported = Path(request.exported) / runtime.MODEL_FILE
        findings += _quantization_findings(exported, model, quantized, cases, verification)
    if low is None and quantized is None:
        findings += parity_cause(
            runtime,
            model,
            request.device,
            request.options,
            cases,
            verification.feeds,
            verification.expected,
            verification.padding,
        )
    findings += collapsed
    beside: tuple[SimulatedCase, ...] = ()
    if low is not None and not simulated:
        from convkit.worker.numerics.simulated_session import open_simulation

        context.progress(f"simulating {low.default}")
        beside = verification.beside_simulation(open_simulation(model, runtime, request.options, low.default), cases)
    result = VerifyResult(
        evidence=evidence,
        session=contract,
        providers=session.providers,
        fallbacks=fallbacks,
        cases=tuple(cases),
        omitted=(*omitted_cases, *omitted_checks),
        probes=tuple(probes),
        simulated=beside,
        invariance=tuple(invariance),
    )
    return result, findings


def _as_it_came(operators: Operators | None, request: VerifyRequest) -> LowPrecision | None:
    """Return the low precision of a graph that nobody asked to lower: somebody else's, or a model loaded in float16.

    On a device it is computed as it is; the CPU would hide what it does. None where the graph's tools are not here.
    """
    dtype = low_type(operators)
    if dtype is None or request.device != "cpu" or quantization(request.options) is not None:
        return None
    return LowPrecision(dtype) if importlib.util.find_spec("onnx_ir") is not None else None


# Below this cosine similarity an output has little left of what it was, whatever its tolerance.
_ESTRANGED = 0.99


def _precision_findings(
    exported: Path,
    low: LowPrecision,
    cases: Sequence[CaseMetrics],
    collapsed: Sequence[Finding],
    verification: BuiltModel,
) -> list[Finding]:
    """Say what the precision did, looking closer at the first case that suffered from it, if any did.

    An output that collapsed (N304) may still be near the original's: where a bias is most of it.
    """
    from convkit.worker.numerics.precision_findings import PrecisionDoctor

    doctor = PrecisionDoctor(exported, low)
    if (lost := next((case.case for case in cases if any(map(_lost_finite, case.outputs))), None)) is not None:
        return doctor.diagnose(lost, verification.feeds(lost))
    off = next(
        (case.case for case in cases if any(not output.cosine >= _ESTRANGED for output in case.outputs)),
        collapsed[0].place.case if collapsed else None,
    )
    if off is None:
        return doctor.harmless()
    return [*doctor.harmless(), *doctor.collapse(off, verification.feeds(off), constant_output=bool(collapsed))]


def _quantization_findings(
    exported: Path, built: Path, quantized: Quantization, cases: Sequence[CaseMetrics], verification: BuiltModel
) -> list[Finding]:
    """Say which modules' quantisation moves the outputs, looking closer at the first case that is far off, if any is.

    Masked rows and extreme values are looked at last: what most inputs suffer from shows in the others.
    """
    far = [case.case for case in cases if any(not output.cosine >= _ESTRANGED for output in case.outputs)]
    far.sort(key=lambda name: not is_usual(name))
    if not far:
        return []
    from convkit.worker.quantization.sensitivity import sensitivity, sensitivity_finding

    finding = sensitivity_finding(sensitivity(exported, built, [verification.feeds(far[0])]), quantized, far[0])
    return [finding] if finding is not None else []


def _lost_finite(output: TensorMetrics) -> bool:
    return bool((output.nan_candidate and not output.nan_reference) or output.inf_mismatched)


def _fallback_finding(fallback: Fallback, wanted: str) -> Finding:
    shown = ", ".join(fallback.nodes[:5]) + (", ..." if len(fallback.nodes) > 5 else "")
    return Finding(
        "E102",
        "warning",
        f"{len(fallback.nodes)} nodes ran on {fallback.provider} instead of {wanted}: {shown}",
        Place(node=fallback.nodes[0]),
        {"provider": fallback.provider, "nodes": list(fallback.nodes)},
        Remedy("Look at the nodes: an operator or element type without a kernel on the device runs elsewhere."),
    )

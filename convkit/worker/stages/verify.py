"""The verify stage: the built model on every case against the reference. Measures; judging is the host's."""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from convkit.findings.model import Finding, Place, Remedy
from convkit.tensors import Contract
from convkit.worker.cases.budget import Budget, running_order
from convkit.worker.cases.case import Feeds, case_cost
from convkit.worker.cases.files import read_cases, read_tensors
from convkit.worker.cases.padding import padding_positions
from convkit.worker.context import Context
from convkit.worker.contract_check import check_contract
from convkit.worker.numerics.metrics import compare, largest_difference
from convkit.worker.precision.decision import decided
from convkit.worker.precision.options import LowPrecision, low_precision
from convkit.worker.protocol import (
    CaseMetrics,
    CaseRecord,
    Fallback,
    OmittedCase,
    ProbeMetrics,
    SimulatedCase,
    TensorMetrics,
    VerifyRequest,
    VerifyResult,
)
from convkit.worker.runtimes.protocol import ModelRefusedError, RunFailedError, RuntimeSession
from convkit.worker.runtimes.registry import runtime_named
from convkit.worker.stages.build import find_model, refused, stated_by_graph


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
    low = low_precision(request.options)
    simulated = low is not None and (request.stand_in or request.device == "cpu")
    evidence: Literal["device", "simulated"] = "simulated" if simulated else "device"
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
        return VerifyResult(evidence, Contract((), (), ()), (), (), (), omitted, ()), [refused(error)]
    findings = check_contract(request.contract, contract, "session")
    verification = _Verification(request, session, contract, context)
    cases, omitted_cases = verification.ladder([case for case in reference.cases if case.kind == "ladder"])
    probes = verification.probes([case for case in reference.cases if case.kind == "probe"])
    fallbacks = session.fallbacks()
    findings += [_fallback_finding(fallback, session.providers[0]) for fallback in fallbacks]
    if low is not None and request.exported is not None:
        findings += _precision_findings(Path(request.exported) / runtime.MODEL_FILE, low, cases, verification)
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
        omitted=tuple(omitted_cases),
        probes=tuple(probes),
        simulated=beside,
    )
    return result, findings


class _Verification:
    """One built model against one reference."""

    def __init__(self, request: VerifyRequest, session: RuntimeSession, found: Contract, context: Context) -> None:
        self._contract = request.contract
        self._reference = Path(request.reference)
        self._budget = Budget(request.budget_seconds)
        self._session = session
        self._input_names = {spec.name for spec in found.inputs}
        self._context = context

    def ladder(self, cases: Sequence[CaseRecord]) -> tuple[list[CaseMetrics], list[OmittedCase]]:
        """Run the ladder within the budget; return metrics in the ladder's order, and what was left out."""
        limited = self._budget.seconds is not None
        order = running_order([case.name for case in cases]) if limited else range(len(cases))
        measured: dict[int, CaseMetrics] = {}
        omitted: list[OmittedCase] = []
        for done, place in enumerate(order):
            case = cases[place]
            cost = case_cost(self._contract, case.sizes)
            if (reason := self._budget.refusal(case.name, cost)) is not None:
                omitted.append(OmittedCase(case.name, reason))
                continue
            self._context.progress(f"built model: {case.name}", done=done / len(cases))
            measured[place] = self._case(case)
            self._budget.record(cost, measured[place].seconds)
        return [measured[place] for place in sorted(measured)], omitted

    def _case(self, case: CaseRecord) -> CaseMetrics:
        feeds = self.feeds(case.name)
        started = time.perf_counter()
        try:
            outputs = self._session.run(feeds)
        except RunFailedError as error:
            return CaseMetrics(case.name, time.perf_counter() - started, (), str(error))
        seconds = time.perf_counter() - started
        # An output that the built model lost was found by the contract's check; what is missing here fails the case.
        masks = {spec.name: spec.mask for spec in self._contract.outputs}
        metrics = tuple(
            compare(name, values, outputs[name], padding_positions(feeds, masks[name]))
            for name, values in self._expected(case.name).items()
            if name in outputs
        )
        return CaseMetrics(case.name, seconds, metrics)

    def probes(self, cases: Sequence[CaseRecord]) -> list[ProbeMetrics]:
        """Measure every probe; the base case's outputs, which are small, are kept."""
        bases: dict[str, tuple[Feeds, Feeds | None]] = {}
        measured = []
        for done, probe in enumerate(cases):
            if probe.base is None:
                bases[probe.name] = (self._expected(probe.name), self._try(probe.name))
                measured += _output_probes(*bases[probe.name])
                continue
            self._context.progress(f"built model: {probe.name}", done=done / len(cases))
            expected_base, found_base = bases[probe.base]
            expected = self._expected(probe.name) if probe.runnable else None
            found = self._try(probe.name)
            measured.append(
                ProbeMetrics(
                    probe=probe.name,
                    moved_reference=_difference(expected_base, expected),
                    moved_candidate=_difference(found_base, found),
                    matches_base=_difference(expected_base, found),
                    matches_probe=_difference(expected, found_base),
                    base_error=_difference(expected_base, found_base),
                )
            )
        return measured

    def beside_simulation(self, simulation: RuntimeSession, cases: Sequence[CaseMetrics]) -> tuple[SimulatedCase, ...]:
        """Run the cases that ran on the device in the simulation as well."""
        from convkit.worker.numerics.device_comparison import compare_with_simulation

        masks = {spec.name: spec.mask for spec in self._contract.outputs}
        return compare_with_simulation(
            self._session,
            simulation,
            [case.case for case in cases if case.error is None],
            self.feeds,
            self._expected,
            lambda feeds, output: padding_positions(feeds, masks[output]),
        )

    def _expected(self, case: str) -> Feeds:
        return read_tensors(self._reference, case, "outputs", self._contract.outputs)

    def _try(self, case: str) -> Feeds | None:
        """Return the built model's outputs; None where it refuses, as it may: probes need not be legal."""
        try:
            return self._session.run(self.feeds(case))
        except RunFailedError:
            return None

    def feeds(self, case: str) -> Feeds:
        """Return a case's inputs by name, without those that the built model lost: the contract's check found them."""
        feeds = read_tensors(self._reference, case, "inputs", self._contract.inputs)
        return {name: values for name, values in feeds.items() if name in self._input_names}


def _output_probes(expected: Feeds, found: Feeds | None) -> list[ProbeMetrics]:
    """Compare each output with its namesake and with the other of every pair of one type and shape.

    `matches_base` is small where the built model gives the one under the other's name.
    """
    measured = []
    for first, second in itertools.combinations(expected, 2):
        pair = {first: expected[first], second: expected[second]}
        alike = pair[first].dtype == pair[second].dtype and pair[first].shape == pair[second].shape
        if found is None or not alike or first not in found or second not in found:
            continue
        crossed = {first: found[second], second: found[first]}
        apart = largest_difference({first: pair[first]}, {first: pair[second]})
        measured.append(
            ProbeMetrics(
                probe=f"outputs:{first}:{second}",
                moved_reference=apart,
                moved_candidate=None,
                matches_base=largest_difference(pair, crossed),
                matches_probe=None,
                base_error=largest_difference(pair, found),
            )
        )
    return measured


def _difference(reference: Feeds | None, candidate: Feeds | None) -> float | None:
    return None if reference is None or candidate is None else largest_difference(reference, candidate)


# Below this cosine similarity an output has little left of what it was, whatever its tolerance.
_ESTRANGED = 0.99


def _precision_findings(
    exported: Path, low: LowPrecision, cases: Sequence[CaseMetrics], verification: _Verification
) -> list[Finding]:
    """Say what the precision did, looking closer at the first case that suffered from it, if any did."""
    from convkit.worker.numerics.precision_findings import PrecisionDoctor

    doctor = PrecisionDoctor(exported, low)
    if (lost := next((case.case for case in cases if any(map(_lost_finite, case.outputs))), None)) is not None:
        return doctor.diagnose(lost, verification.feeds(lost))
    off = next((case.case for case in cases if any(not output.cosine >= _ESTRANGED for output in case.outputs)), None)
    return [*doctor.harmless(), *(doctor.collapse(off, verification.feeds(off)) if off is not None else [])]


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

"""The verify stage for targets built from the exported graph."""

import contextlib
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Literal

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import (
    CaseMetrics,
    Device,
    LowPrecision,
    OptionsT,
    Quantization,
    VerifyRequest,
    VerifyResult,
    is_of_plain_rows,
    is_usual,
)
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.job_context import Context
from convkit.worker.metrics.label_flips import flip_findings
from convkit.worker.metrics.parity_cause import parity_cause
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.distinct_operators import (
    Operators,
    has_quantized_operators,
    low_type,
    read_operators,
)
from convkit.worker.runtime_interface.sessions import GraphRuntime, RuntimeSession
from convkit.worker.stages.graph_build import opens_slowly, stated_by_graph, suspected_refusals
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import (
    DIVERGED,
    Opened,
    first_divergent_case,
    first_lost,
    verify,
)
from convkit.worker.verification.product_families import ProductFamilies, product_families

# Of a graph of which beginnings are opened, about twice as many times as its nodes have digits.
_MOST_BYTES = 1 << 28


def verify_graph(
    request: VerifyRequest[OptionsT], runtime: GraphRuntime[OptionsT], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify a built graph (see `verification.verify`).

    On the CPU, a low-precision model is replaced by its simulation, because the CPU computes most
    of it in float32.
    """
    request = with_decision(request)
    subject = BuiltGraph(request, runtime)
    with contextlib.ExitStack() as held:
        return verify(request, subject, context, subject.families(held))


def graph_subject(
    request: VerifyRequest[OptionsT], runtime: GraphRuntime[OptionsT]
) -> "BuiltGraph[OptionsT]":
    """Return what `verify_graph` verifies, for a joined run."""
    return BuiltGraph(with_decision(request), runtime)


class BuiltGraph(Generic[OptionsT]):
    """A built ONNX graph, its precision, and what is known about both."""

    def __init__(self, request: VerifyRequest[OptionsT], runtime: GraphRuntime[OptionsT]) -> None:
        self._request = request
        self._runtime = runtime
        self._model = find_model(Path(request.built), runtime.MODEL_FILE)
        self._operators = read_operators(self._model.parent)
        precision = request.precision
        asked = precision if isinstance(precision, LowPrecision) else None
        self._quantized = precision if isinstance(precision, Quantization) else None
        self._low = asked or _native_precision(self._operators, request)
        self._is_simulated = self._low is not None and (request.stand_in or request.device == "cpu")
        simulated = self._is_simulated or request.stand_in
        self.evidence: Literal["device", "simulated"] = "simulated" if simulated else "device"
        self._device: Device = "cpu" if request.stand_in else request.device

    @property
    def suspected(self) -> list[Finding]:
        """The operators without kernels."""
        return suspected_refusals(self._runtime, self._operators, self._request)

    def open(self, context: Context) -> Opened:
        """Load the graph, or its simulation instead; raises ModelRefusedError."""
        request = self._request
        if self._low is None or not self._is_simulated:
            session = (
                self.stand_in_session()
                if request.stand_in
                else self._runtime.open(self._model, self._device, request.options)
            )
            return Opened(session, session.contract(), request.contract)
        # If the simulation replaces a device, the CPU may lack kernels for the type itself.
        contract = (
            stated_by_graph(self._model)[0]
            if request.stand_in or opens_slowly(self._runtime, self._operators, request)
            else self._runtime.open(self._model, request.device, request.options).contract()
        )
        context.progress(f"simulating {self._low.default}")
        return Opened(self._simulated(self._low), contract, request.contract)

    def families(self, held: contextlib.ExitStack) -> ProductFamilies[OptionsT] | None:
        """Return the families of processors that the graph's products may differ on; `held` keeps
        what they need open.
        """
        quantized = self._quantized is not None or has_quantized_operators(self._operators)
        return product_families(
            self._request, self._runtime, self._model, held, quantized=quantized
        )

    def simulation(self) -> RuntimeSession | None:
        """Return the counterpart of a device's results: the simulation of a low precision,
        otherwise the graph on the CPU.
        """
        if self._low is not None and not self._is_simulated:
            return self._simulated(self._low)
        on_device = self._device != "cpu"
        return self._runtime.open(self._model, "cpu", self._request.options) if on_device else None

    def stand_in_session(self) -> RuntimeSession:
        """Return the graph on the CPU, simulated if its precision is low, in an arithmetic that is
        the same on every processor.
        """
        if self._low is not None:
            return self._simulated(self._low)
        # Only here does the environment have onnx-ir.
        from convkit.worker.precision.simulation.simulation_session import open_defined

        return open_defined(self._model, self._open_as_written)

    def _open_as_written(self, path: Path) -> RuntimeSession:
        """Open a graph on the CPU without the runtime's optimizations."""
        options = self._request.options
        plain = self._runtime.plain(options)
        return self._runtime.open(path, "cpu", plain[0][1] if plain else options)

    def unrounded_session(self) -> RuntimeSession:
        """Return the low-precision graph on the CPU, computed in float32 throughout."""
        # Only here does the environment have onnx-ir.
        from convkit.worker.precision.simulation.simulation_session import open_unrounded

        options = self._request.options
        return open_unrounded(self._model, lambda path: self._runtime.open(path, "cpu", options))

    def _simulated(self, low: LowPrecision) -> RuntimeSession:
        # Only here does the environment have onnx-ir.
        from convkit.worker.precision.simulation.simulation_session import open_simulation

        return open_simulation(self._model, self._open_as_written, low.default)

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Explain wrong results, depending on the target's precision."""
        request, quantized = self._request, self._quantized
        findings: list[Finding] = []
        if self._low is not None:
            findings += self._by_precision(self._low, cases, collapsed, verification)
        if quantized is not None and request.exported is not None:
            findings += self._by_quantization(
                Path(request.exported), quantized, cases, verification
            )
        if self._low is None and quantized is None:
            found = parity_cause(
                request.contract,
                lambda options: self._runtime.open(self._model, self._device, options),
                self._runtime.plain(request.options),
                cases,
                verification.feeds,
                verification.expected,
                verification.padding,
            )
            findings += [self._placed(finding, verification) for finding in found]
        outputs = verification.outputs
        return [*findings, *flip_findings(request.contract, cases, verification.expected, outputs)]

    def _placed(self, finding: Finding, verification: BuiltModel) -> Finding:
        """Return N401 with the node at which optimizations change the results."""
        plain = dict(self._runtime.plain(self._request.options))
        options, case = plain.get(str(finding.evidence.get("right"))), finding.place.case
        if options is None or case is None or not _can_cut(self._model):
            return finding
        from convkit.worker.verification.changed_by_optimization import placed

        built, right = (
            functools.partial(self._runtime.open, device=self._device, options=each)
            for each in (self._request.options, options)
        )
        return placed(finding, self._model, verification.feeds(case), built, right)

    def _by_precision(
        self,
        low: LowPrecision,
        cases: Sequence[CaseMetrics],
        collapsed: Sequence[Finding],
        verification: BuiltModel,
    ) -> list[Finding]:
        """Explain the effects of low precision, examining the first case that suffered from it, if
        any.
        """
        from convkit.worker.precision.diagnosis.low_precision_findings import PrecisionDiagnosis

        exported = self._request.exported
        diagnosis = PrecisionDiagnosis(
            Path(exported) / EXPORTED_FILE if exported else self._model, low
        )
        if (lost := first_lost(cases)) is not None:
            return diagnosis.diagnose(lost, verification.feeds(lost))
        if (off := first_divergent_case(cases, collapsed)) is None:
            return [*diagnosis.harmless(), *self._sums(low, cases, verification)]
        return diagnosis.collapse(off, verification.feeds(off), constant_output=bool(collapsed))

    def _sums(
        self, low: LowPrecision, cases: Sequence[CaseMetrics], verification: BuiltModel
    ) -> list[Finding]:
        """Return what is right here, and infinite on devices that add up in the precision."""
        exported = self._request.exported
        drawn = [case.case for case in cases if is_usual(case.case)]
        # The smallest sizes have the smallest sums; the largest may take long.
        usual = next((case for case in drawn if case == "typical"), next(iter(drawn), None))
        if low.default != "float16" or exported is None or usual is None:
            return []
        from convkit.worker.verification.wide_sums import wide_sums

        return wide_sums(Path(exported) / EXPORTED_FILE, verification.feeds(usual), low.patterns)

    def _by_quantization(
        self,
        exported: Path,
        quantized: Quantization,
        cases: Sequence[CaseMetrics],
        verification: BuiltModel,
    ) -> list[Finding]:
        """Find the modules whose quantization moves the outputs, examining a case that is far off,
        if any.

        Masked rows and extreme values are examined last: errors that affect most inputs also show
        in the others. Plain rows are not: quantized, they are judged for NaN and infinity alone.
        """
        far = [
            case.case
            for case in cases
            if not is_of_plain_rows(case.case)
            and any(not output.cosine >= DIVERGED for output in case.outputs)
        ]
        far.sort(key=lambda name: not is_usual(name))
        if not far:
            return []
        from convkit.worker.precision.quantization.channel_equalization import (
            equalized_file,
            exponents_of,
        )
        from convkit.worker.precision.quantization.module_sensitivity import (
            sensitivity,
            sensitivity_finding,
        )
        from convkit.worker.precision.quantization.switched_quantization import TooLargeError

        graph = exported / EXPORTED_FILE
        try:
            with equalized_file(graph, exponents_of(self._model)) as even:
                found = sensitivity(even, self._model, [verification.feeds(far[0])])
        except TooLargeError as error:
            return [Finding("Q111", str(error), Place(case=far[0]))]
        finding = sensitivity_finding(found, quantized, far[0])
        return [finding] if finding is not None else []


def _can_cut(model: Path) -> bool:
    """Say whether this environment can cut a graph, and a graph is small enough to open often."""
    size = sum(file.stat().st_size for file in model.parent.glob(f"{model.name}*"))
    return size < _MOST_BYTES and importlib.util.find_spec("onnx_ir") is not None


def _native_precision(
    operators: Operators | None, request: VerifyRequest[OptionsT]
) -> LowPrecision | None:
    """Return the low precision of a graph that convkit did not lower: a third-party file, or a
    model loaded in float16.

    A device computes it as it is; the CPU would hide its effects. None if the graph's tools are not
    available.
    """
    dtype = low_type(operators)
    if dtype is None or request.device != "cpu" or isinstance(request.precision, Quantization):
        return None
    return LowPrecision(dtype) if importlib.util.find_spec("onnx_ir") is not None else None

"""The verify stage of OpenVINO targets.

Low precision is judged on the device only if the CPU supports the type and OpenVINO reports that it
computes in it. Otherwise, its simulation is judged, and the IR, which then computes in float32,
must stay close to it, or to the same graph without rounding.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    CaseMetrics,
    Fallback,
    LowPrecision,
    Quantization,
    VerifyRequest,
    VerifyResult,
)
from convkit.protocol.numpy_dtypes import without_bits
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.openvino import session as openvino
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.metrics.tensor_metrics import as_float64, compare
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.distinct_operators import (
    Operators,
    low_type,
    read_operators,
    write_operators,
)
from convkit.worker.runtime_interface.sessions import RunFailedError, RuntimeSession
from convkit.worker.stages.graph_build import suspected_refusals
from convkit.worker.stages.graph_verify import BuiltGraph
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import DIVERGED, Opened, verify
from convkit.worker.verification.product_families import ProductFamilies, product_families

# How many times further than roundings move an output in the simulation they may move it in the IR.
_TIMES = 2


def run(
    request: VerifyRequest[OpenVINOOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify the built IR (see `verification.verify`). Raises StageSkippedError."""
    request = with_decision(request)
    with contextlib.ExitStack() as held:
        subject = BuiltIR(request, held)
        return verify(request, subject, context, subject.families(held))


def subject(request: VerifyRequest[OpenVINOOptions], held: contextlib.ExitStack) -> "BuiltIR":
    """Return the built IR as a part of a joined run; `held` keeps its files alive."""
    return BuiltIR(with_decision(request), held)


class BuiltIR:
    """A built IR, its precision, and the graph that explains it. `held` keeps that graph's file
    alive.
    """

    def __init__(self, request: VerifyRequest[OpenVINOOptions], held: contextlib.ExitStack) -> None:
        self._request = request
        self._file = find_model(Path(request.built), openvino.MODEL_FILE)
        self._operators = read_operators(self._file.parent)
        self._low = _low_precision(request, self._operators)
        self._on_device = self._low is None or openvino.can_compute(self._low.default)
        self.evidence: Literal["device", "simulated"] = "device" if self._on_device else "simulated"
        self._graph = self._explaining_graph(held)

    @property
    def suspected(self) -> list[Finding]:
        """The operators without kernels."""
        return suspected_refusals(openvino, self._operators, self._request)

    def open(self, context: Context) -> Opened:
        """Load the IR, or pair it with its simulation; raises ModelRefusedError."""
        session = openvino.open(self._file, "cpu", self._request.options)
        contract = session.contract()
        if self._low is None or self._on_device:
            return Opened(session, contract, self._request.contract)
        context.progress(f"simulating {self._low.default}")
        assert self._graph is not None
        paired = SimulatedIR(self._simulation(), session, self._graph.unrounded_session)
        return Opened(paired, contract, self._request.contract)

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Explain wrong results by the precision of the graph that the IR was built from.

        float32 is not explained: a single runtime cannot show which side causes a difference.
        """
        if self._graph is None:
            return []
        return self._graph.explain(cases, collapsed, verification)

    def families(self, held: contextlib.ExitStack) -> ProductFamilies[OnnxRuntimeOptions] | None:
        """Return the families of processors that an int8 IR's products may differ on.

        OpenVINO's kernels saturate as onnxruntime's do: both have VPMADDUBSW (measured under both
        families with OpenVINO 2026.4, on the products of tests/models/integer_products/). So the
        graph that the IR was built from, run by onnxruntime, shows the other family's results.
        """
        if self._graph is None:
            return None
        folder = self._file.parent / openvino.GRAPH_FOLDER
        request = dataclasses.replace(_of_graph(self._request, folder), stand_in=False)
        quantized = isinstance(request.precision, Quantization)
        return product_families(
            request, onnxruntime, folder / EXPORTED_FILE, held, quantized=quantized
        )

    def simulation(self) -> RuntimeSession | None:
        """Return the simulation to compare with low precision on the device."""
        return self._simulation() if self._low is not None and self._on_device else None

    def _simulation(self) -> RuntimeSession:
        assert self._graph is not None
        return self._graph.stand_in_session()

    def _explaining_graph(self, held: contextlib.ExitStack) -> BuiltGraph | None:
        request = self._request
        kept = self._file.parent / openvino.GRAPH_FOLDER
        if kept.is_dir():
            folder = kept
        elif isinstance(request.precision, LowPrecision):
            folder = held.enter_context(_lowered(request, request.precision))
        else:
            return None
        # The folder does not tell the precision that the graph came in.
        known = dataclasses.replace(request, precision=request.precision or self._low)
        return BuiltGraph(_of_graph(known, folder), onnxruntime)


class SimulatedIR:
    """The simulation of an IR whose type the CPU does not support.

    Each run also runs the IR, in float32. If the two diverge, rounding may be why, as in
    `(1 + small) - 1`. So `unrounded` opens the simulated graph without its roundings: an IR that
    diverges from that too, by more than roundings can, is not the simulated graph, and the run
    fails. Some roundings are in the IR as well: OpenVINO folds constants in their own type.
    """

    def __init__(
        self,
        simulation: RuntimeSession,
        built: openvino.OpenVINOSession,
        unrounded: Callable[[], RuntimeSession],
    ) -> None:
        self._simulation = simulation
        self._built = built
        self._unrounded = functools.cache(unrounded)
        self.providers: tuple[str, ...] = simulation.providers

    def contract(self) -> Contract:
        """Return the IR's contract."""
        return self._built.contract()

    def metadata(self) -> Mapping[str, str]:
        """Return the IR's metadata strings."""
        return self._built.metadata()

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: no device was involved."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the simulation's outputs; raises RunFailedError if either fails or they differ."""
        simulated, built = self._simulation.run(feeds), self._built.run(feeds)
        if _diverged_outputs(simulated, built):
            exact = self._unrounded().run(feeds)
            far = [
                name
                for name in _diverged_outputs(exact, built)
                if not _may_be_rounding(simulated.get(name), exact[name], built.get(name))
            ]
            if far:
                raise RunFailedError(
                    f"the IR, computed in float32, is far from its own simulation in {far[0]!r},"
                    " and roundings are not why: it is not the graph that was simulated"
                )
        return simulated


def _diverged_outputs(
    expected: Mapping[str, np.ndarray], built: Mapping[str, np.ndarray]
) -> list[str]:
    """Return the outputs that the IR lacks, or that diverge."""
    return [
        name
        for name, values in expected.items()
        if name not in built or _has_diverged(name, values, built[name])
    ]


def _may_be_rounding(
    simulated: np.ndarray | None, exact: np.ndarray, built: np.ndarray | None
) -> bool:
    """Say whether an output of the IR is off by about what roundings move it in the simulation."""
    if simulated is None or built is None or not simulated.shape == exact.shape == built.shape:
        return False
    if not exact.size or without_bits(exact).dtype.kind != "f":
        return False
    moved = np.abs(as_float64(simulated) - as_float64(exact)).max()
    return bool(np.abs(as_float64(built) - as_float64(exact)).max() <= _TIMES * moved)


def _has_diverged(name: str, simulated: np.ndarray, built: np.ndarray) -> bool:
    """Return True if an output diverges from the expected one; overflow there does not count."""
    found = compare(name, simulated, built)
    if found.mismatch is not None:
        return True
    if found.nan_reference or found.inf_reference or not found.elements:
        return False
    near = found.max_abs <= (1 - DIVERGED) * float(np.max(np.abs(without_bits(simulated))))
    return bool(found.nan_candidate) or not (near or found.cosine >= DIVERGED)


def _low_precision(
    request: VerifyRequest[OpenVINOOptions], operators: Operators | None
) -> LowPrecision | None:
    """Return the requested precision, or that of a graph already in low precision; None for others.

    Raises StageFailedError for a graph in a type that neither the CPU can compute nor the available
    tools can simulate.
    """
    if request.precision is not None:
        return request.precision if isinstance(request.precision, LowPrecision) else None
    if (dtype := low_type(operators)) is None:
        return None
    if not openvino.can_compute(dtype) and importlib.util.find_spec("onnx_ir") is None:
        raise StageFailedError(
            f"the model is in {dtype}, which this CPU does not compute: write model.dtype: float32,"
            f" and precision: {dtype} for the target, which is then simulated"
        )
    return LowPrecision(dtype)


@contextlib.contextmanager
def _lowered(request: VerifyRequest[OpenVINOOptions], low: LowPrecision) -> Iterator[Path]:
    """Yield a folder with the graph that the IR was built from, recreated, because the IR is not
    ONNX.
    """
    from convkit.worker.building.lowered_files import lower_file
    from convkit.worker.graph.graph_loading import load_model
    from convkit.worker.graph.operator_probes import graph_operators

    if request.exported is None:
        raise StageFailedError(
            "a low precision is verified with its exported graph, which is missing"
        )
    source = find_model(Path(request.exported), EXPORTED_FILE)
    with tempfile.TemporaryDirectory(prefix="convkit-lowered-") as folder:
        lower_file(source, Path(folder) / EXPORTED_FILE, low)
        write_operators(graph_operators(load_model(Path(folder) / EXPORTED_FILE)), Path(folder))
        yield Path(folder)


def _of_graph(
    request: VerifyRequest[OpenVINOOptions], folder: Path
) -> VerifyRequest[OnnxRuntimeOptions]:
    """Return the request for the graph next to the IR, run by onnxruntime on the CPU."""
    values = {each.name: getattr(request, each.name) for each in dataclasses.fields(request)}
    return VerifyRequest(
        **values | {"options": OnnxRuntimeOptions(), "built": str(folder), "stand_in": True}
    )

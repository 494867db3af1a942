"""The verify stage of TensorRT targets, on the device: the engine by name, compared with the
simulation of its graph.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Literal

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseMetrics, OptionsT, VerifyRequest, VerifyResult
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.tensorrt.build import ENGINE_FILE
from convkit.runtimes.tensorrt.engine_contract import arranged, own_order
from convkit.runtimes.tensorrt.library import check_library
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.stages.graph_verify import BuiltGraph, graph_subject, verify_graph
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import Opened, Subject, verify


def run(
    request: VerifyRequest[EngineOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify an engine (see `verification.verify`), or the graph that it would be built from if
    there is no device. Raises StageSkippedError if TensorRT is absent.
    """
    if request.stand_in:
        return verify_graph(of_graph(request), onnxruntime, context)
    check_library()
    request = with_decision(request)
    return verify(request, BuiltEngine(request, of_graph(request), _open), context)


def subject(request: VerifyRequest[EngineOptions], held: contextlib.ExitStack) -> Subject:
    """Return the engine, or its graph if there is no device, as a part of a joined run."""
    del held
    if request.stand_in:
        return graph_subject(of_graph(request), onnxruntime)
    check_library()
    request = with_decision(request)
    return BuiltEngine(request, of_graph(request), _open)


def of_graph(request: VerifyRequest[OptionsT]) -> VerifyRequest[OnnxRuntimeOptions]:
    """Return the request for the graph next to the engine, run by onnxruntime on the CPU."""
    values = {each.name: getattr(request, each.name) for each in dataclasses.fields(request)}
    return VerifyRequest(**values | {"options": OnnxRuntimeOptions(), "stand_in": True})


def _open(request: VerifyRequest[EngineOptions]) -> RuntimeSession:
    from convkit.runtimes.tensorrt.session import EngineSession

    return EngineSession(find_model(Path(request.built), ENGINE_FILE), request.options)


class BuiltEngine(Generic[OptionsT]):
    """An engine, opened by a function, and its source graph, which explains its results."""

    evidence: Literal["device"] = "device"
    suspected: Sequence[Finding] = ()

    def __init__(
        self,
        request: VerifyRequest[OptionsT],
        graph: VerifyRequest[OnnxRuntimeOptions],
        open_engine: Callable[[VerifyRequest[OptionsT]], RuntimeSession],
    ) -> None:
        self._request = request
        self._open_engine = open_engine
        # The same graph with onnxruntime on the CPU, simulated if its precision is low.
        self._graph = BuiltGraph(graph, onnxruntime)
        self.notes: list[Finding] = []

    def open(self, context: Context) -> Opened:
        """Load the engine; raises ModelRefusedError."""
        context.progress("loading the engine")
        session = self._open_engine(self._request)
        found = session.contract()
        self.notes = own_order(self._request.contract, found)
        return Opened(session, arranged(self._request.contract, found), self._request.contract)

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Explain wrong results by the graph's precision, and report the order in which the engine
        lists its tensors.
        """
        return [*self.notes, *self._graph.explain(cases, collapsed, verification)]

    def simulation(self) -> RuntimeSession | None:
        """Return the graph on the CPU, simulated if its precision is low."""
        return self._graph.stand_in_session()

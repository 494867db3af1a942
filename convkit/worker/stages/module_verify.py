"""The verify stage of any runtime that converts the torch module itself, and runs it for real."""

from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Literal

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseMetrics, OptionsT, VerifyRequest, VerifyResult
from convkit.worker.building.built_files import find_model
from convkit.worker.building.module_runtime import ModuleRuntime
from convkit.worker.job_context import Context
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import Opened, verify


def verify_module(
    request: VerifyRequest[OptionsT], runtime: ModuleRuntime[OptionsT], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify a built model on every case (see `verification.verify`)."""
    return verify(request, BuiltModule(request, runtime), context)


class BuiltModule(Generic[OptionsT]):
    """A built model that its own runtime executes; also a part of a joined run."""

    evidence: Literal["device", "simulated"] = "device"

    def __init__(self, request: VerifyRequest[OptionsT], runtime: ModuleRuntime[OptionsT]) -> None:
        self._request = with_decision(request)
        self._runtime = runtime
        self._file = find_model(Path(request.built), runtime.MODEL_FILE)
        self.suspected: list[Finding] = []

    def open(self, context: Context) -> Opened:
        """Load the model; raises ModelRefusedError."""
        del context
        request = self._request
        session = self._runtime.open(self._file, request.device, request.options)
        return Opened(session, session.contract(), self._runtime.declared(request.contract))

    def simulation(self) -> RuntimeSession | None:
        """Return None: the model is executed."""
        return None

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Return nothing: a runtime's `diagnose` job searches with the original at hand."""
        del cases, collapsed, verification
        return []

"""The verify stage of Core AI targets: the file is executed on every case."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseMetrics, VerifyRequest, VerifyResult
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.runtimes.coreai.session import MODEL_FILE, CoreAISession, served_contract
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import Opened, verify


def run(
    request: VerifyRequest[CoreAIOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify a built file (see `verification.verify`)."""
    request = with_decision(request)
    return verify(request, BuiltFile(request), context)


def subject(request: VerifyRequest[CoreAIOptions], held: contextlib.ExitStack) -> "BuiltFile":
    """Return the built file as a part of a joined run."""
    del held
    return BuiltFile(with_decision(request))


class BuiltFile:
    """A built file, executed by Core AI's own runtime."""

    evidence: Literal["device", "simulated"] = "device"

    def __init__(self, request: VerifyRequest[CoreAIOptions]) -> None:
        self._request = request
        self._file = find_model(Path(request.built), MODEL_FILE)
        self.suspected: list[Finding] = []

    def open(self, context: Context) -> Opened:
        """Load the file; raises ModelRefusedError."""
        context.progress("compiling the model for this machine")
        session = CoreAISession(self._file)
        return Opened(session, session.contract(), served_contract(self._request.contract))

    def simulation(self) -> RuntimeSession | None:
        """Return None: the file is executed."""
        return None

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Return nothing: what differs is searched for with the original at hand (`diagnose`)."""
        del cases, collapsed, verification
        return []

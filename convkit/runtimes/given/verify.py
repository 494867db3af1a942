"""The verify stage of given models."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseMetrics, VerifyRequest, VerifyResult
from convkit.runtimes.given.build import MODEL
from convkit.runtimes.given.formats import FORMATS
from convkit.runtimes.given.options import GivenOptions
from convkit.runtimes.given.session import UnnamedError, open_given
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.metrics.label_flips import flip_findings
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import Opened, verify


def run(
    request: VerifyRequest[GivenOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify the file as it is (see `verification.verify`)."""
    return verify(request, GivenModel(request), context)


def subject(request: VerifyRequest[GivenOptions], held: contextlib.ExitStack) -> "GivenModel":
    """Return the file as a part of a joined run."""
    del held
    return GivenModel(request)


class GivenModel:
    """A given model: nothing is known of how it was made."""

    def __init__(self, request: VerifyRequest[GivenOptions]) -> None:
        self._request = request
        self.evidence = FORMATS[request.options.format].evidence
        self.suspected: list[Finding] = []

    def open(self, context: Context) -> Opened:
        """Open the file under the contract's names; raises ModelRefusedError."""
        del context
        request = self._request
        path = find_model(Path(request.built), f"{MODEL}{request.options.format}")
        try:
            session = open_given(path, request.options, request.contract)
        except UnnamedError as error:
            self.suspected.append(error.finding)
            raise
        return Opened(session, session.contract(), request.contract)

    def simulation(self) -> RuntimeSession | None:
        """Return None: there is no device to compare with."""
        return None

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Return what differences mean for labels; their cause is in how the file was made."""
        del collapsed
        contract, expected = self._request.contract, verification.expected
        return flip_findings(contract, cases, expected, verification.outputs)

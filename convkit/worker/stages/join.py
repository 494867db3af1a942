"""The join stage: runs the built parts of a model together, each on what the parts before it really
produce, and measures the outputs of the whole.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    BuiltPart,
    CaseMetrics,
    JoinRequest,
    VerifyRequest,
    VerifyResult,
)
from convkit.worker.job_context import Context
from convkit.worker.join.joined_session import JoinedSession
from convkit.worker.join.part_flow import Wiring
from convkit.worker.join.wrong_parts import parts_at_fault
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RuntimeSession
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.built_parts import request_and_function
from convkit.worker.verification.model_verification import Opened, Subject, verify


def run(request: JoinRequest, context: Context) -> tuple[VerifyResult, list[Finding]]:
    """Verify the joined parts like one built model (see `verification.verify`).

    If an output is outside its limits, C514 names the parts that make it so, or C510 says that no
    built part does. Raises StageFailedError if a part's runtime cannot take part in a joined run.
    """
    whole: VerifyRequest[None] = VerifyRequest(
        contract=request.contract,
        options=None,
        precision=None,
        device="cpu",
        built="",
        reference=request.reference,
        budget_seconds=request.budget_seconds,
        evaluation=request.evaluation,
    )
    with contextlib.ExitStack() as held:
        return verify(whole, _JoinedParts(request, held), context)


class _JoinedParts:
    """The subject of the verification: every part as its own runtime verifies it, simulated where
    this machine lacks its device.
    """

    def __init__(self, request: JoinRequest, held: contextlib.ExitStack) -> None:
        self._request = request
        self._parts = {part.name: _part(part, held) for part in request.parts}
        self._session: JoinedSession | None = None

    @property
    def evidence(self) -> Literal["device", "simulated"]:
        """Simulated if any part is."""
        simulated = any(each.evidence == "simulated" for each, _ in self._parts.values())
        return "simulated" if simulated else "device"

    @property
    def suspected(self) -> Sequence[Finding]:
        """Reasons why a part's runtime may reject it."""
        return [finding for each, _ in self._parts.values() for finding in each.suspected]

    def open(self, context: Context) -> Opened:
        """Load every part; raises ModelRefusedError, which names the part."""
        sessions: dict[str, RuntimeSession] = {}
        for name, (subject, _) in self._parts.items():
            try:
                sessions[name] = subject.open(context).session
            except ModelRefusedError as error:
                raise ModelRefusedError(f"part {name}: {error}") from error
        contracts = {name: request.contract for name, (_, request) in self._parts.items()}
        wiring = Wiring(self._request.flow, self._request.contract, contracts)
        self._session = JoinedSession(wiring, sessions)
        return Opened(self._session, self._request.contract, self._request.contract)

    def simulation(self) -> RuntimeSession | None:
        """Return nothing: each part's own verification compares its device with its simulation."""
        return None

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Return which parts make an output wrong, if one is."""
        del collapsed
        assert self._session is not None
        found = parts_at_fault(
            self._session, self._request.limits, cases, Path(self._request.reference), verification
        )
        return [found] if found is not None else []


def _part(part: BuiltPart, held: contextlib.ExitStack) -> "tuple[Subject, VerifyRequest[object]]":
    """Return a part as its runtime verifies it, and the request for that."""
    request, subject = request_and_function(
        part, "verify", "subject", "cannot take part in a joined run"
    )
    return subject(request, held), request

"""The verify stage of Core ML targets: the package is evaluated, and on macOS also predicted by
Core ML.
"""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import (
    CaseMetrics,
    LowPrecision,
    VerifyRequest,
    VerifyResult,
    is_usual,
)
from convkit.runtimes.coreml.conversion.declared_shapes import served_contract
from convkit.runtimes.coreml.conversion.recorded_constants import read_constants
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.runtimes.coreml.session import MODEL_FILE, EvaluatedProgram, PredictedProgram
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.metrics.tensor_metrics import largest_difference
from convkit.worker.mil.program_errors import UnsupportedOperation
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RuntimeSession
from convkit.worker.verification.built_model import BuiltModel
from convkit.worker.verification.model_verification import (
    Opened,
    first_divergent_case,
    first_lost,
    verify,
)


def run(
    request: VerifyRequest[ProgramOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify a built package (see `verification.verify`)."""
    request = with_decision(request)
    return verify(request, BuiltPackage(request, predicts=sys.platform == "darwin"), context)


def subject(request: VerifyRequest[ProgramOptions], held: contextlib.ExitStack) -> "BuiltPackage":
    """Return the built package as a part of a joined run."""
    del held
    return BuiltPackage(with_decision(request), predicts=sys.platform == "darwin")


class BuiltPackage:
    """A built package. `predicts`: Core ML is available, and its own results are judged."""

    def __init__(self, request: VerifyRequest[ProgramOptions], *, predicts: bool) -> None:
        self._request = request
        self._path = find_model(Path(request.built), MODEL_FILE)
        self._predicts = predicts
        self._evaluated: EvaluatedProgram | None = None
        self._predicted: PredictedProgram | None = None
        self.evidence: Literal["device", "simulated"] = "device" if predicts else "simulated"
        self.suspected: list[Finding] = []

    def open(self, context: Context) -> Opened:
        """Load the package into the evaluator, and into Core ML if available; raises
        ModelRefusedError.
        """
        try:
            self._evaluated = EvaluatedProgram(self._path)
        except UnsupportedOperation as error:
            self.suspected.append(_unknown(error))
            raise ModelRefusedError(str(error)) from error
        session: RuntimeSession = self._evaluated
        if self._predicts:
            context.progress("loading the package into Core ML")
            session = self._predicted = PredictedProgram(self._path, self._evaluated)
        return Opened(session, session.contract(), served_contract(self._request.contract))

    def simulation(self) -> RuntimeSession | None:
        """Return the evaluator, to compare with Core ML's own results."""
        return self._evaluated if self._predicts else None

    def explain(
        self, cases: Sequence[CaseMetrics], collapsed: Sequence[Finding], verification: BuiltModel
    ) -> list[Finding]:
        """Explain the effects of the target's low precision, examining the first case that suffered
        from it.

        On macOS, also report how far the CPU alone differs from all units.
        """
        precision = self._request.precision
        low = precision if isinstance(precision, LowPrecision) else None
        if low is None or self._evaluated is None:
            return self._by_units(cases, verification)
        return [
            *self._by_precision(low, cases, collapsed, verification),
            *self._by_units(cases, verification),
        ]

    def _by_precision(
        self,
        low: LowPrecision,
        cases: Sequence[CaseMetrics],
        collapsed: Sequence[Finding],
        verification: BuiltModel,
    ) -> list[Finding]:
        assert self._evaluated is not None
        from convkit.runtimes.coreml.float16_findings import (
            ProgramDiagnosis,  # only low precision causes these problems
        )

        diagnosis = ProgramDiagnosis(
            self._evaluated.program, self._evaluated.modules, read_constants(self._path.parent), low
        )
        if (lost := first_lost(cases)) is not None:
            return diagnosis.diagnose(
                lost, self._evaluated.as_program_takes(verification.feeds(lost))
            )
        if (off := first_divergent_case(cases, collapsed)) is None:
            usual = next((case.case for case in cases if is_usual(case.case)), None)
            feeds = verification.feeds(usual) if usual is not None else None
            sums = (
                diagnosis.sums(self._evaluated.as_program_takes(feeds)) if feeds is not None else []
            )
            return [*diagnosis.harmless(), *sums]
        return [
            *diagnosis.harmless(),
            *diagnosis.collapse(
                off,
                self._evaluated.as_program_takes(verification.feeds(off)),
                constant_output=bool(collapsed),
            ),
        ]

    def _by_units(self, cases: Sequence[CaseMetrics], verification: BuiltModel) -> list[Finding]:
        """Return a note on how far Core ML's CPU alone differs from all of the machine's units."""
        if self._predicted is None:
            return []
        worst, where = 0.0, None
        for case in (each.case for each in cases if each.error is None):
            feeds = verification.feeds(case)
            apart = largest_difference(
                self._predicted.run(feeds), self._predicted.run_on_the_cpu(feeds)
            )
            if not apart <= worst:
                worst, where = apart, case
        message = (
            f"Core ML's results on the CPU alone and on all units differ by at most {worst:.3g}"
        )
        return [Finding("N213", message, Place(case=where), {"largest_difference": worst})]


def _unknown(error: UnsupportedOperation) -> Finding:
    named = [
        f"{each} (module {error.modules[each]})" if error.modules.get(each) else each
        for each in error.operations
    ]
    return Finding(
        "E211",
        f"the evaluator does not support {', '.join(named)}, so this program's results are unknown",
        Place(module=next((path for path in error.modules.values() if path), None)),
        {"operations": list(error.operations), "modules": error.modules},
        Remedy(
            "Verify the package on macOS, or write the model with other operations. Neither was"
            " tried."
        ),
    )

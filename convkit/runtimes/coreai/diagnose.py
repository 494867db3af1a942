"""The diagnose job of Core AI targets: the model is converted and executed again, in float32 and in
its precision, with its intermediate values.
"""

import dataclasses
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult, low_type_of
from convkit.runtimes.coreai.compression_cause import compression_finding
from convkit.runtimes.coreai.float16_causes import Float16Causes
from convkit.runtimes.coreai.float32_causes import Float32Causes
from convkit.runtimes.coreai.module_conversion import read_record
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.runtimes.coreai.trial_conversions import Trials, outputs_or_none
from convkit.worker.cases.compared_cases import single_case
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.original.probing.prepared_model import Unfit, prepare
from convkit.worker.precision.search_judgment import compared, overshoot_in


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Find why the built model differs from the original in one reference case: what Core AI
    computes differently in float32, or else what its precision cannot hold.

    Raises StageSkippedError for a model that no longer fits its contract.
    """
    original, contract = request.original, request.contract
    assert original is not None  # Core AI targets convert the model itself
    prepared, _ = prepare(original, contract, context)
    if isinstance(prepared, Unfit):
        raise StageSkippedError("the model does not fit its contract")
    context.progress("converting to a Core AI model in float32", done=0.3)
    assert request.built is not None
    record = read_record(Path(request.built))
    options = decode(CoreAIOptions, request.options)
    options = dataclasses.replace(options, decompose=record.decompose)
    trials = Trials.of(prepared, contract, options)
    judged = single_case(
        Path(request.reference), contract, request.case, low_type_of(record.precision)
    )
    if options.compression is not None:
        context.progress("trying it without compression", done=0.4)
        caused = compression_finding(trials, record.precision, request.case, judged)
        if caused is not None:
            return _result([caused])
    if (low := record.precision) is not None:
        found = outputs_or_none(trials.session, judged.feeds)
        if overshoot_in(judged, compared(judged, found), request.limits) <= 1:
            context.progress("looking for what float16 cannot hold", done=0.5)
            causes = Float16Causes(trials, low, request.case, judged, request.limits)
            return _result(causes.findings())
    context.progress("looking for the first difference", done=0.6)
    return _result(Float32Causes(trials, request.case, judged.feeds, judged.expected).findings())


def _result(findings: list[Finding]) -> tuple[DiagnoseResult, list[Finding]]:
    proven = sum(finding.evidence.get("proven") is True for finding in findings)
    return DiagnoseResult(None, None, proven), findings

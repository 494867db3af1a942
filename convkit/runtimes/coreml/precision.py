"""The precision stage of Core ML targets: resolves their precision for the program, before a
package is built.
"""

from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision, PrecisionRequest, PrecisionResult, low_type_of
from convkit.runtimes.coreml.conversion.fixed_axes import convert_or_explain
from convkit.runtimes.coreml.conversion.module_conversion import ModuleConversion
from convkit.runtimes.coreml.conversion.program_precision import decide
from convkit.runtimes.coreml.float32_parity import (
    explain_float32,
    first_divergent_in_float32,
    too_fine_an_input,
    too_large_an_input,
)
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.worker.cases.compared_cases import ladder_cases, plain_cases
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.probing.prepared_model import Unfit, prepare
from convkit.worker.precision.precision_decision import write_decision
from convkit.worker.precision.searched_limits import searched_limits, with_derived


def run(
    request: PrecisionRequest[ProgramOptions], context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    """Examine a target's precision on the reference's cases; resolve `auto`.

    A program that already differs from the original in float32, or whose types do not hold a
    case's inputs, is explained instead (N408, T108, N402): nothing is searched.
    """
    precision = request.precision
    if not isinstance(precision, LowPrecision):
        raise StageFailedError(f"{precision!r} needs no precision stage")
    assert request.original is not None  # Core ML targets convert the model itself
    prepared, findings = prepare(request.original, request.contract, context)
    if isinstance(prepared, Unfit):
        return PrecisionResult(precision=precision), findings
    options = request.options
    context.progress("converting to an ML program in float32", done=0.2)
    conversion = ModuleConversion(
        prepared.module,
        prepared.probe.inputs,
        options.minimum,
        options.shapes,
        root=prepared.loaded.source_root,
    )
    converted = convert_or_explain(conversion, prepared.probe.sizes)
    cases = ladder_cases(
        Path(request.reference), request.contract, low_type_of(precision), copies=False
    )
    for name, case in cases.items():
        if (refused := too_large_an_input(converted, case.feeds, name)) is not None:
            return PrecisionResult(precision=precision), [*findings, refused]
    is_auto = precision.keep_float32 == "auto"
    if is_auto:
        context.progress("comparing it with the original in float32", done=0.4)
        off = first_divergent_in_float32(converted, cases, request.limits)
        if off is not None:
            case = cases[off]
            compared = off, case.feeds, case.expected
            if (fine := too_fine_an_input(converted, prepared.module, *compared)) is not None:
                return PrecisionResult(precision=precision), [*findings, fine]
            _, why = explain_float32(converted, request.contract, *compared)
            return PrecisionResult(precision=precision), [*findings, *why]
        given = Path(request.reference), request.contract, low_type_of(precision)
        cases = {**plain_cases(*given), **ladder_cases(*given, copies=False, sweeps=True)}
        cases = with_derived(cases, request.derived)
    searched = "searching for what must stay in float32"
    context.progress(searched if is_auto else "measuring the range of every tensor", done=0.5)
    decision = decide(
        converted.program,
        converted.modules,
        precision.keeping(precision.patterns),
        cases,
        searched_limits(request) if is_auto else request.limits,
        is_auto=is_auto,
    )
    write_decision(context.output, decision.precision)
    result = PrecisionResult(decision.precision, decision.modules, decision.rounds)
    return result, [*findings, *decision.findings]

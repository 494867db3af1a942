"""The precision stage of Core ML targets: what their precision means for the program, before a
package is built.
"""

from pathlib import Path

from convkit.cases.judged import ladder_cases
from convkit.codec import encode
from convkit.findings.model import Finding
from convkit.models.sources.prepared import Unfit, prepare
from convkit.precision.decision import write_decision
from convkit.precision.options import is_undecided, low_precision
from convkit.runtimes.coreml.conversion import Conversion, convert
from convkit.runtimes.coreml.options import program_options
from convkit.runtimes.coreml.plan import decide
from convkit.worker.context import Context, StageFailedError
from convkit.worker.protocol import PrecisionResult, ProgramPrecisionRequest


def run(
    request: ProgramPrecisionRequest, context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    """Look at a target's precision on the reference's cases; decide what `auto` leaves open."""
    precision = low_precision(request.options)
    if precision is None:
        raise StageFailedError(f"{request.options.get('precision')!r} needs no precision stage")
    original = request.original
    prepared, findings = prepare(
        original.source,
        request.contract,
        original.samples,
        original.seed,
        original.input_order,
        context,
    )
    if isinstance(prepared, Unfit):
        return PrecisionResult(precision=encode(precision)), findings
    options = program_options(request.options)
    context.progress("converting to an ML program in float32", done=0.2)
    converted = convert(
        Conversion(prepared.module, prepared.probe.inputs, options.minimum, options.shapes)
    )
    context.progress("measuring the range of every tensor", done=0.5)
    decision = decide(
        converted.program,
        converted.modules,
        precision,
        ladder_cases(Path(request.reference), request.contract),
        request.limits,
        is_auto=is_undecided(request.options),
    )
    decided = encode(decision.precision)
    write_decision(context.output, decided)
    result = PrecisionResult(precision=decided, modules=decision.modules, rounds=decision.rounds)
    return result, [*findings, *decision.findings]

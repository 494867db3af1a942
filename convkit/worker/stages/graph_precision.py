"""The precision stage: resolves a target's precision for the exported graph, before anything is
built.

Measures the range of every tensor in float32, reports each module's headroom, and, for
`keep_float32: auto`, determines what must stay in float32.
"""

import dataclasses
import math
from pathlib import Path

import onnx_ir as ir

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    LowPrecision,
    ModulePrecision,
    OptionsT,
    PlanRound,
    PrecisionRequest,
    PrecisionResult,
    Quantization,
    is_of_sweep,
    low_type_of,
)
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.cases.calibration_cases import calibration_feeds
from convkit.worker.cases.compared_cases import ladder_cases, plain_cases
from convkit.worker.graph.typed_graph import UntypedValueError
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.precision.lowering.module_weights import weights_by_module
from convkit.worker.precision.lowering.precision_plan import (
    Assignment,
    PrecisionPlan,
    assign,
    module_table,
)
from convkit.worker.precision.precision_decision import write_decision
from convkit.worker.precision.search.graph_search import Search, search_plan
from convkit.worker.precision.search.search_findings import headroom_findings, searched_finding
from convkit.worker.precision.search.unheld_in_graph import unheld_in_graph
from convkit.worker.precision.searched_limits import searched_limits, with_derived
from convkit.worker.precision.simulation.float32_graph import float32_file, load_float32
from convkit.worker.precision.value_ranges import RangeReport, run_ranges


def run(
    request: PrecisionRequest[OptionsT], context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    """Examine a target's precision on the reference's cases; resolve `auto`.

    Findings: N208 reports the decision, N209 that nothing meets the tolerance, N210 which modules
    overflow, Q112 that weights have seven bits.
    """
    path = find_model(Path(request.exported or ""), EXPORTED_FILE)
    asked = request.precision
    if isinstance(asked, Quantization):
        return _decide_quantization(path, asked, request, context)
    if asked is None:
        raise StageFailedError("a target in float32 needs no precision stage")
    try:
        model, _ = load_float32(path, asked.default)
    except UntypedValueError as error:
        raise StageFailedError(str(error)) from error
    precision = asked.keeping(asked.patterns)
    low = low_type_of(asked)
    cases = ladder_cases(Path(request.reference), request.contract, low, copies=False)
    context.progress("measuring the range of every tensor")
    with float32_file(path, asked.default) as file:
        report = run_ranges(file, {name: case.feeds for name, case in cases.items()})
    findings: list[Finding] = []
    search: Search | None = None
    if asked.keep_float32 == "auto":
        context.progress("searching for what must stay in float32", done=0.4)
        given = Path(request.reference), request.contract, low
        every = {**plain_cases(*given), **ladder_cases(*given, copies=False, sweeps=True)}
        derived = with_derived(every, request.derived)
        search = search_plan(model, precision, derived, searched_limits(request))
        precision = search.precision
    assignment = assign(model, PrecisionPlan(precision.default, precision.patterns))
    if search is not None:
        unheld = unheld_in_graph(model, assignment, report, cases)
        findings.append(searched_finding(precision, search.found, unheld))
    modules = _modules(model, assignment, report, precision)
    findings += headroom_findings(modules, precision)
    write_decision(context.output, precision)
    result = PrecisionResult(
        precision=precision,
        modules=modules,
        rounds=search.found.rounds if search is not None else (),
        unmeasured=tuple(tensor.tensor for tensor in report.unmeasured),
    )
    return result, findings


def _decide_quantization(
    path: Path, quantized: Quantization, request: PrecisionRequest[OptionsT], context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    from convkit.worker.precision.quantization.quantization_decision import decide_quantization
    from convkit.worker.precision.quantization.weight_bits import with_weight_bits

    low = low_type_of(quantized)
    # A quantized model is run, not simulated: a search quickly judges it by all sizes.
    every = ladder_cases(Path(request.reference), request.contract, low, copies=False, sweeps=True)
    every = with_derived(every, request.derived)
    judged = {
        name: case for name, case in every.items() if name.partition(":")[0] not in request.clipped
    }
    cases = {name: case for name, case in judged.items() if not is_of_sweep(name)}
    # What the build calibrates with, copies included.
    usual = list(calibration_feeds(Path(request.reference), request.contract))
    rounds: tuple[PlanRound, ...] = ()
    if quantized.reduce_range is None:
        context.progress("looking for products that saturate")
    chosen, findings = with_weight_bits(path, quantized, cases, usual)
    if quantized.keep_float32 == "auto":
        context.progress("searching for what must stay in float32")
        may_narrow = quantized.reduce_range is None
        limits = searched_limits(request)
        chosen, kept, searched = decide_quantization(
            path, chosen, judged, limits, usual, request.families, narrows=may_narrow
        )
        findings += searched
        rounds = tuple(each.as_protocol() for each in kept.rounds)
    if chosen.calibration is not None and chosen.calibration.file is not None:
        # An artifact contains no path of this machine; builds take the file from their own options.
        file = Path(chosen.calibration.file).name
        chosen = dataclasses.replace(
            chosen, calibration=dataclasses.replace(chosen.calibration, file=file)
        )
    write_decision(context.output, chosen)
    return PrecisionResult(precision=chosen, rounds=rounds), findings


def _modules(
    model: ir.Model, assignment: Assignment, report: RangeReport, precision: LowPrecision
) -> tuple[ModulePrecision, ...]:
    headrooms = {row.module: row for row in report.by_module(precision.default)}
    tensors = {tensor.tensor: tensor for tensor in report.tensors}
    weights = weights_by_module(model, assignment)
    rows = []
    for row in module_table(model, assignment):
        worst = headrooms.get(row.module)
        tensor = tensors[worst.tensor] if worst is not None else None
        stored = weights.get(row.module)
        rows.append(
            ModulePrecision(
                module=row.module,
                low=row.low,
                float32=row.float32,
                low_weights=stored.low if stored is not None else 0,
                float32_weights=stored.float32 if stored is not None else 0,
                reasons=row.reasons,
                headroom=(
                    worst.headroom if worst is not None and math.isfinite(worst.headroom) else None
                ),
                largest=tensor.largest if tensor is not None else 0.0,
                tensor=tensor.tensor if tensor is not None else "",
                case=tensor.case if tensor is not None else "",
            )
        )
    return tuple(rows)

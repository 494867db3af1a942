"""The reference stage: runs the original model once on every case; built models are judged against
its outputs.
"""

import itertools
import sys
from collections.abc import Iterator, Sequence

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    CaseRecord,
    ReferenceRequest,
    ReferenceResult,
    RoundedOutput,
    Steps,
)
from convkit.worker.cases.axis_sizes import probe_sizes, smallest_sizes
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.case_files import read_tensors, write_cases
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.decision_sizes import NO_DECISIONS, Decisions
from convkit.worker.cases.time_budget import Budget
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import Context
from convkit.worker.join.joined_original import JoinedOriginal
from convkit.worker.join.part_agreement import agreement
from convkit.worker.reference.denormal_finding import DenormalWatch
from convkit.worker.reference.earlier_outputs import EarlierOutputs
from convkit.worker.reference.ladder_run import LadderRun
from convkit.worker.reference.original_calls import OriginalCalls
from convkit.worker.reference.original_decisions import (
    diverging_branches,
    known_decisions,
    one_sided_findings,
    untried_findings,
)
from convkit.worker.reference.original_invariance import run_original
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal, open_original
from convkit.worker.reference.prepared_inputs import PreparedInputs, tokenizer_constants
from convkit.worker.reference.probe_run import ProbeRun
from convkit.worker.reference.processed_original import behind_processors
from convkit.worker.reference.processed_results import constants_findings
from convkit.worker.steps.reference_greedy import write_generation
from convkit.worker.steps.reference_steps import ReferenceSteps

_HALF = ("float16", "bfloat16")
# Calls that are tried for one in which what a model writes to its inputs changes them.
_WRITE_CALLS = 6


def run(request: ReferenceRequest, context: Context) -> tuple[ReferenceResult, list[Finding]]:
    """Run the original on every case; write `cases.json` and each case's inputs and outputs.

    Findings: N103 if the original returns NaN, C112 for an input without effect, C205 and C207 for
    undeclared dtypes and shapes, N303 for a random original, N307 for one whose rows depend on one
    another, N513 for a value that Python reads and no case changes, N515 for comparisons that turn
    out alike in all cases, N305 for one that depends on
    padding,
    N306 for one that depends on denormal numbers, E306 for one that is partly in training mode,
    C501 to C503 if steps and one pass differ, C510 to C518 if joined parts and the whole differ,
    C520 to C527 and C570 to C576 for constants that its processors do not have, C579 for those not
    compared. Raises StageFailedError if the original
    rejects a case of the ladder.
    """
    context.progress("loading the original model")
    joined = JoinedOriginal(request.joined, request.contract) if request.joined else None
    own = _original(request, joined)
    prepared = PreparedInputs(request.prepared, request.contract, own)
    original = behind_processors(own, request.contract, prepared.processors)
    made_from = CaseInputs(request.contract, request.samples, request.seed, original.facts)
    decisions = _decisions(request, original, made_from, context)
    cases, omitted = build_ladder(
        made_from,
        request.texts,
        original.tokenizer,
        request.skip_cases,
        decisions,
        ladder=request.ladder,
        files=prepared.cases(made_from, own),
        example=request.example,
    )
    kept = EarlierOutputs(request.earlier, request.contract)
    calls = OriginalCalls(original, made_from, context, kept)
    denormals = DenormalWatch(original, request.contract, context)
    findings = [*untried_findings(decisions), *_unsteady(own, made_from)]
    findings += prepared.findings(made_from, own)
    findings += tokenizer_constants(request.contract, original, request.texts)
    budget = Budget(request.budget_seconds)
    ladder = LadderRun(calls, denormals)
    records = ladder.run(cases, omitted, budget, decisions)
    findings += ladder.findings
    findings += constants_findings(
        request.contract, request.processed, own, records, context.output, request.seed
    )
    probes = ProbeRun(calls)
    records += probes.run(omitted)
    findings += [*probes.findings, *_mode(own, made_from), *_writes(own, records, calls)]
    findings += one_sided_findings(
        decisions, own, request.graph, request.contract, lambda: _small_calls(records, calls)
    )
    half = any(dtype in _HALF for dtype in _dtypes(request))
    findings += denormals.findings(records, half=half)
    if joined is not None:
        whole = own if request.source is not None else None
        of_ladder = [record for record in records if record.kind == "ladder"]
        findings += agreement(joined, whole, of_ladder, context, half=half)
    invariance = run_original(original, made_from, context, budget, half=half)
    looped: list[CaseRecord] = []
    if request.steps is not None:
        loop = _run_steps(request.steps, calls, budget, half=half)
        looped = loop.records
        findings += loop.findings
        omitted += loop.omitted
    cases_run = (*records, *invariance.cases, *looped)
    left_out = (*omitted, *ladder.left_out, *invariance.omitted)
    if "torch" in sys.modules:  # the original runs with it; environments of ONNX files lack it
        from convkit.worker.reference.open_choices import write_open_choices

        write_open_choices(original, request.contract, records, context.output, request.rounded)
    branches = diverging_branches(decisions, records)
    rounded: tuple[RoundedOutput, ...] = ()
    if request.rounded and isinstance(own, TorchOriginal):
        from convkit.worker.reference.rounded_original import rounded_outputs

        context.progress(f"original model: rounded to {', '.join(request.rounded)}")
        rounded = rounded_outputs(
            own.module, original.run, request.contract, records, context.output, request.rounded
        )
    result = ReferenceResult(
        cases_run,
        left_out,
        invariance.layout,
        branches,
        rounded,
        met_denormals=denormals.met,
        taken_over=kept.used,
    )
    write_cases(context.output, result)
    _evaluate(request, original, made_from, context)
    findings += invariance.findings
    if any(each.code == "N303" for each in findings):  # what changes anyway says nothing of rows
        findings = [each for each in findings if each.code != "N307"]
    return result, findings


def _decisions(
    request: ReferenceRequest, original: OriginalModel, made_from: CaseInputs, context: Context
) -> Decisions:
    """Return what the model decides by sizes and values; the quick ladder does not ask."""
    if request.ladder != "full":
        return NO_DECISIONS
    context.progress("looking for branches on sizes and values")
    return known_decisions(original, made_from, request.graph)


def _evaluate(
    request: ReferenceRequest, original: OriginalModel, made_from: CaseInputs, context: Context
) -> None:
    """Run the original on the rows of `evaluate`, if the recipe has any."""
    if request.evaluation is None:
        return
    from convkit.worker.evaluate.task_runs import run_rows

    context.progress("original model: the rows of evaluate")
    run_rows(request.evaluation, made_from, original.tokenizer, original.run, context.output)


def _original(request: ReferenceRequest, joined: JoinedOriginal | None) -> OriginalModel:
    if request.source is not None:
        return open_original(request.source, request.contract.unfused())
    assert joined is not None  # a model has a source or parts
    return joined


def _dtypes(request: ReferenceRequest) -> list[str | None]:
    """Return the element types of the weights and of the outputs."""
    parts = request.joined.parts if request.joined is not None else ()
    sources = [request.source, *(part.source for part in parts)]
    loaded = [source.dtype for source in sources if source is not None]
    return [*loaded, *(spec.dtype for spec in request.contract.outputs)]


def _run_steps(steps: Steps, calls: OriginalCalls, budget: Budget, *, half: bool) -> ReferenceSteps:
    """Run the loop that the recipe declares; generate tokens with it if it says so."""
    loop = ReferenceSteps(calls.original, calls.made_from, steps, calls.context)
    loop.run(budget, half=half)
    if steps.generate:
        calls.context.progress("original model: generating tokens")
        write_generation(calls.context.output, calls.original, calls.made_from, steps)
    return loop


def _unsteady(own: OriginalModel, made_from: CaseInputs) -> list[Finding]:
    """Report outputs that depend on earlier calls or on the moment of a call."""
    if not isinstance(own, TorchOriginal):
        return []
    tried = (smallest_sizes(made_from.contract), probe_sizes(made_from.contract))
    earlier, feeds = (made_from.draw(sizes, Draw("call")) for sizes in tried)
    found = own.unsteady(earlier, feeds)
    return [found] if found is not None else []


def _writes(
    own: OriginalModel, records: Sequence[CaseRecord], calls: OriginalCalls
) -> list[Finding]:
    """Report inputs that a call changes."""
    if not isinstance(own, TorchOriginal):
        return []
    return [*own.written_inputs(itertools.islice(_small_calls(records, calls), _WRITE_CALLS))]


def _small_calls(records: Sequence[CaseRecord], calls: OriginalCalls) -> Iterator[Feeds]:
    """Yield the inputs of the ladder's cases, without the largest one's."""
    return (
        read_tensors(calls.context.output, each.name, "inputs", calls.contract.inputs)
        for each in records
        if each.kind == "ladder" and each.name != "largest"
    )


def _mode(own: OriginalModel, made_from: CaseInputs) -> list[Finding]:
    """Report modules that the source left in training mode."""
    if not isinstance(own, TorchOriginal):
        return []
    typical = made_from.contract.typical_sizes()
    found = own.training_mode(lambda: made_from.draw(typical, Draw("training")))
    return [found] if found is not None else []

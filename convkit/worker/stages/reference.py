"""The reference stage: runs the original model once on every case; built models are judged against
its outputs.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    CaseRecord,
    OmittedCase,
    ReferenceRequest,
    ReferenceResult,
    RoundedOutput,
    Steps,
)
from convkit.protocol.same_fields import taken_from
from convkit.worker.cases.axis_sizes import probe_sizes, smallest_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds, case_cost, sizes_text
from convkit.worker.cases.case_files import read_tensors, write_cases, write_tensors
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.decision_sizes import NO_DECISIONS, Decisions
from convkit.worker.cases.input_probes import BASE, base_case, build_probes
from convkit.worker.cases.largest_accepted_size import (
    refused_values,
    restricted_axes,
    with_values_of,
)
from convkit.worker.cases.time_budget import Budget, running_order
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.join.joined_original import JoinedOriginal
from convkit.worker.join.part_agreement import agreement
from convkit.worker.metrics.tensor_metrics import largest_difference
from convkit.worker.reference.defined_rows import with_defined_rows
from convkit.worker.reference.denormal_finding import DenormalWatch
from convkit.worker.reference.earlier_outputs import EarlierOutputs
from convkit.worker.reference.open_choices import write_open_choices
from convkit.worker.reference.original_decisions import (
    diverging_branches,
    known_decisions,
    untried_findings,
)
from convkit.worker.reference.original_invariance import run_original
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal, open_original
from convkit.worker.reference.original_outputs import (
    count_nan,
    nan_findings,
    no_influence,
    ranges_without_nan,
    undeclared_outputs,
)
from convkit.worker.reference.passed_nan import passes_nan
from convkit.worker.reference.prepared_inputs import PreparedInputs, tokenizer_constants
from convkit.worker.reference.processed_original import behind_processors
from convkit.worker.reference.processed_results import constants_findings
from convkit.worker.reference.repeated_rows import FewRows, few_rows
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.reference_greedy import write_generation
from convkit.worker.steps.reference_steps import ReferenceSteps

_HALF = ("float16", "bfloat16")
# Calls that are tried for one in which what a model writes to its inputs changes them.
_WRITE_CALLS = 6


def run(request: ReferenceRequest, context: Context) -> tuple[ReferenceResult, list[Finding]]:
    """Run the original on every case; write `cases.json` and each case's inputs and outputs.

    Findings: N103 if the original returns NaN, C112 for an input without effect, C205 and C207 for
    undeclared dtypes and shapes, N303 for a random original, N307 for one whose rows depend on one
    another, N513 for a value that Python reads and no case changes, N305 for one that depends on
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
    stage = _Reference(original, made_from, context, kept)
    stage.findings += untried_findings(decisions)
    stage.check_steady(own)
    stage.findings += prepared.findings(made_from, own)
    stage.findings += tokenizer_constants(request.contract, original, request.texts)
    budget = Budget(request.budget_seconds)
    records = stage.ladder(cases, omitted, budget, decisions)
    stage.findings += constants_findings(
        request.contract, request.processed, own, records, context.output, request.seed
    )
    records += stage.probes(made_from, omitted)
    stage.check_mode(own)
    stage.check_writes(own, records)
    half = any(dtype in _HALF for dtype in _dtypes(request))
    stage.check_denormals(records, half=half)
    if joined is not None:
        ladder = [record for record in records if record.kind == "ladder"]
        whole = own if request.source is not None else None
        stage.findings += agreement(joined, whole, ladder, context, half=half)
    invariance = run_original(original, made_from, context, budget, half=half)
    looped: list[CaseRecord] = []
    if request.steps is not None:
        looped = stage.steps(request.steps, omitted, budget, half=half)
    cases_run = (*records, *invariance.cases, *looped)
    left_out = (*omitted, *stage.left_out, *invariance.omitted)
    write_open_choices(original, request.contract, records, context.output)
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
        met_denormals=stage.met_denormals,
        taken_over=kept.used,
    )
    write_cases(context.output, result)
    _evaluate(request, original, made_from, context)
    findings = [*stage.findings, *invariance.findings]
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


class _Reference:
    """Runs cases and collects findings along the way."""

    def __init__(
        self,
        original: OriginalModel,
        made_from: CaseInputs,
        context: Context,
        earlier: EarlierOutputs,
    ) -> None:
        self._original = original
        self._earlier = earlier
        self._made_from = made_from
        self._contract = made_from.contract
        self._context = context
        self._odd_outputs: set[tuple[str, str]] = set()
        self._denormals = DenormalWatch(original, self._contract, context)
        self.findings: list[Finding] = []
        self.left_out: list[OmittedCase] = []

    def ladder(
        self,
        cases: Sequence[Case],
        omitted: list[OmittedCase],
        budget: Budget,
        decisions: Decisions,
    ) -> list[CaseRecord]:
        """Run the ladder within the budget; return the records in the ladder's order."""
        order = (
            running_order([case.name for case in cases])
            if budget.seconds is not None
            else range(len(cases))
        )
        records: dict[int, CaseRecord] = {}
        for done, place in enumerate(order):
            case = cases[place]
            largest = case.name == "largest"
            few = few_rows(self._made_from, case, decisions) if largest else None
            cost = case_cost(self._contract, case.sizes if few is None else few.sizes)
            if (reason := budget.refusal(case.name, cost)) is not None:
                omitted.append(OmittedCase(case.name, reason))
                continue
            self._context.progress(f"original model: {case.name}", done=done / len(cases))
            record = self._ladder_case(case, few)
            if isinstance(record, OmittedCase):
                omitted.append(record)
                continue
            records[place] = record
            budget.record(cost, record.seconds)
        return [records[place] for place in sorted(records)]

    def steps(
        self, steps: Steps, omitted: list[OmittedCase], budget: Budget, *, half: bool
    ) -> list[CaseRecord]:
        """Run the loop that the recipe declares; generate tokens with it if it says so."""
        loop = ReferenceSteps(self._original, self._made_from, steps, self._context)
        loop.run(budget, half=half)
        self.findings += loop.findings
        omitted += loop.omitted
        if steps.generate:
            self._context.progress("original model: generating tokens")
            write_generation(self._context.output, self._original, self._made_from, steps)
        return loop.records

    def _ladder_case(self, case: Case, few: FewRows | None) -> CaseRecord | OmittedCase:
        if few is not None and (record := self._with_few_rows(few)) is not None:
            return record
        feeds = case.inputs()
        try:
            with self._denormals.case(case.name):
                outputs, seconds = self._run(feeds, case.expected)
        except RunFailedError as error:
            if (fewer := with_defined_rows(case, self._original.run)) is not None:
                self.left_out += fewer[1]
                return self._ladder_case(fewer[0], None)
            if case.may_be_refused:
                return OmittedCase(case.name, f"the original refuses it: {error}")
            literal = self._literal_size(case, feeds)
            restricted = [literal] if literal else restricted_axes(self._contract, self._accepts)
            raise StageFailedError(self._explain_refusal(case, feeds, error), restricted) from error
        if case.may_be_nan and any(map(count_nan, outputs.values())):
            if (fewer := with_defined_rows(case, self._original.run)) is not None:
                self.left_out += fewer[1]
                return self._ladder_case(fewer[0], None)
            return OmittedCase(case.name, "the original returns NaN")
        return self._recorded(case, feeds, outputs, seconds)

    def _with_few_rows(self, few: FewRows) -> CaseRecord | None:
        """Run a case with few rows, repeated; None if all of them must run."""
        started = time.perf_counter()
        kept = self._earlier.find(few.repeated.inputs())
        outputs = few.outputs(self._original.run) if kept is None else kept[0]
        if outputs is None:
            return None
        seconds = time.perf_counter() - started if kept is None else kept[1]
        record = self._recorded(few.repeated, few.repeated.inputs(), outputs, seconds)
        return dataclasses.replace(record, row_order=few.order)

    def _recorded(self, case: Case, feeds: Feeds, outputs: Feeds, seconds: float) -> CaseRecord:
        passed_on = passes_nan(feeds, outputs, self._original.run)
        self._check_outputs(case, outputs, passed_on=passed_on)
        self._write(case, feeds, outputs)
        return CaseRecord(
            *(case.name, case.kind, case.description, case.sizes, seconds), passes_nan=passed_on
        )

    def _accepts(self, sizes: dict[str, int]) -> bool:
        """Say whether the original runs at some sizes, with drawn values or with accepted ones."""
        feeds = self._made_from.draw(sizes, Draw("smallest"))
        return self._runs(feeds) or self._runs(with_values_of(feeds, self._smallest()))

    def _smallest(self) -> Feeds:
        return self._made_from.draw(smallest_sizes(self._contract), Draw("smallest"))

    def _runs(self, feeds: Feeds) -> bool:
        try:
            self._original.run(feeds)
        except RunFailedError:
            return False
        return True

    def probes(self, made_from: CaseInputs, omitted: list[OmittedCase]) -> list[CaseRecord]:
        """Run the base case and its probes; an input that moves no output yields C112."""
        base = self._base(made_from)
        if isinstance(base, str):
            omitted.append(OmittedCase(BASE, base))
            return []
        case, record = base
        probes, left_out = build_probes(made_from, case)
        omitted += left_out
        records = [record]
        expected = read_tensors(self._context.output, case.name, "outputs", self._contract.outputs)
        base_feeds = read_tensors(self._context.output, case.name, "inputs", self._contract.inputs)
        for done, probe in enumerate(probes):
            self._context.progress(f"original model: {probe.name}", done=done / len(probes))
            records.append(self._probe(probe, base_feeds, expected))
        return records

    def _base(self, made_from: CaseInputs) -> tuple[Case, CaseRecord] | str:
        """Return the base case at the first sizes that the original accepts, or why there is
        none.
        """
        contract = self._contract
        refusal = ""
        for sizes in (probe_sizes(contract), contract.typical_sizes(), smallest_sizes(contract)):
            case = base_case(made_from, sizes)
            feeds = case.inputs()
            try:
                outputs, seconds = self._run(feeds)
            except RunFailedError as error:
                refusal = refusal or f"the original refuses {sizes_text(sizes)}: {error}"
                continue
            self._write(case, feeds, outputs)
            return case, CaseRecord(case.name, case.kind, case.description, case.sizes, seconds)
        return refusal

    def _probe(self, probe: Case, base: Feeds, expected: Feeds) -> CaseRecord:
        feeds = probe.inputs()
        record = taken_from(CaseRecord, probe, seconds=0.0)
        write_tensors(self._context.output, probe.name, "inputs", feeds)
        if all(np.array_equal(feeds[name], base[name]) for name in feeds):
            return dataclasses.replace(
                record, runnable=False, detail="the samples allow no other values"
            )
        try:
            outputs, seconds = self._run(feeds)
        except RunFailedError as error:
            return dataclasses.replace(
                record, runnable=False, detail=f"the original refuses it: {error}"
            )
        write_tensors(self._context.output, probe.name, "outputs", outputs)
        change, same = probe.change, largest_difference(expected, outputs) == 0.0
        if change is not None and change.kind == "perturbed" and same:
            samples = self._made_from.samples
            # A constant sample says nothing about other values, such as a limit's beyond all data.
            constant = {name for name in samples if samples[name].kind == "constant"}
            self.findings += map(no_influence, set(change.tensors) - constant)
        return dataclasses.replace(record, seconds=seconds)

    def _run(
        self, feeds: Feeds, expected: Callable[[], Feeds] | None = None
    ) -> tuple[Feeds, float]:
        if expected is None and (kept := self._earlier.find(feeds)) is not None:
            return kept
        started = time.perf_counter()
        outputs = self._original.run(feeds) if expected is None else expected()
        return outputs, time.perf_counter() - started

    def check_steady(self, own: OriginalModel) -> None:
        """Report outputs that depend on earlier calls or on the moment of a call."""
        if isinstance(own, TorchOriginal):
            tried = (smallest_sizes(self._contract), probe_sizes(self._contract))
            earlier, feeds = (self._made_from.draw(sizes, Draw("call")) for sizes in tried)
            found = own.unsteady(earlier, feeds)
            self.findings += [found] if found is not None else []

    def check_writes(self, own: OriginalModel, records: Sequence[CaseRecord]) -> None:
        """Report inputs that a call changes."""
        if isinstance(own, TorchOriginal):
            specs = self._contract.inputs
            calls = (
                read_tensors(self._context.output, each.name, "inputs", specs)
                for each in records
                if each.kind == "ladder" and each.name != "largest"
            )
            self.findings += own.written_inputs(itertools.islice(calls, _WRITE_CALLS))

    def check_denormals(self, records: Sequence[CaseRecord], *, half: bool) -> None:
        """Report an original whose results depend on denormal numbers."""
        self.findings += self._denormals.findings(records, half=half)

    @property
    def met_denormals(self) -> tuple[str, ...]:
        """The names of the cases in which the original met a denormal number."""
        return self._denormals.met

    def check_mode(self, own: OriginalModel) -> None:
        """Report modules that the source left in training mode."""
        if isinstance(own, TorchOriginal):
            typical = self._contract.typical_sizes()
            found = own.training_mode(lambda: self._made_from.draw(typical, Draw("training")))
            self.findings += [found] if found is not None else []

    def _write(self, case: Case, feeds: Feeds, outputs: Feeds) -> None:
        write_tensors(self._context.output, case.name, "inputs", feeds)
        write_tensors(self._context.output, case.name, "outputs", outputs)

    def _check_outputs(self, case: Case, outputs: Feeds, *, passed_on: bool) -> None:
        """Report NaN that is not passed on at each case, and outputs that differ from the declared
        ones at the first.
        """
        original = self._original
        origin = (
            functools.partial(original.nan_origin, case.inputs())
            if isinstance(original, TorchOriginal)
            else None
        )
        narrower = functools.partial(ranges_without_nan, self._made_from, original.run)
        ranges = narrower if case.name == "extreme" else dict
        if not passed_on:
            self.findings += nan_findings(self._contract, case, outputs, origin, ranges)
        for finding in undeclared_outputs(self._contract, case, outputs):
            shaped = finding.code == "C207"
            literal = self._literal_size(case, case.inputs()) if shaped else None
            self._note(literal or finding)

    def _literal_size(self, case: Case, feeds: Feeds) -> Finding | None:
        if not isinstance(self._original, TorchOriginal):
            return None
        return self._original.literal_size(feeds, case.sizes)

    def _note(self, finding: Finding) -> None:
        key = (finding.code, finding.place.tensor or "")
        if key not in self._odd_outputs:
            self._odd_outputs.add(key)
            self.findings.append(finding)

    def _explain_refusal(self, case: Case, feeds: Feeds, error: RunFailedError) -> str:
        """Explain why the original rejects a legal input: values, its element type, or more
        positions than it supports.
        """
        what = f"the original model refuses case {case.name!r} ({sizes_text(case.sizes)}): {error}"
        smallest = self._smallest()
        name = refused_values(feeds, smallest, self._runs) if self._runs(smallest) else None
        if name is not None and feeds[name].size:
            low, high = feeds[name].min(), feeds[name].max()
            return (
                f"{what}. It accepts these sizes with other values of {name!r}, which are {low} to"
                f" {high} here: limit the sample of {name!r} to what the model accepts"
            )
        accepted = (
            self._original.accepted_dtype(feeds)
            if isinstance(self._original, TorchOriginal)
            else None
        )
        if accepted is not None:
            spec, dtype = accepted
            place = [other.name for other in self._contract.inputs].index(spec.name)
            return (
                f"{what}. It takes {spec.name!r} as {dtype}; the recipe declares {spec.dtype}: "
                f"write inputs.{place}.dtype: {dtype}"
            )
        positions = self._original.facts.max_positions
        for axis in self._contract.axes:
            if positions is not None and case.sizes[axis.name] > positions:
                return (
                    f"{what}. The model has {positions} positions: axes.{axis.name} can go no"
                    " further"
                )
        return f"{what}. If the case does not apply to the model, list it under verify.skip"

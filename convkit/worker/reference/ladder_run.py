"""The ladder's cases, run by the original within a budget."""

import dataclasses
import functools
import time
from collections.abc import Sequence

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CaseRecord, OmittedCase
from convkit.worker.cases.case import Case, Feeds, case_cost
from convkit.worker.cases.decision_sizes import Decisions
from convkit.worker.cases.largest_accepted_size import restricted_axes
from convkit.worker.cases.time_budget import Budget, running_order
from convkit.worker.job_context import StageFailedError
from convkit.worker.reference.defined_rows import with_defined_rows
from convkit.worker.reference.denormal_finding import DenormalWatch
from convkit.worker.reference.original_calls import OriginalCalls
from convkit.worker.reference.original_model import TorchOriginal
from convkit.worker.reference.original_outputs import (
    count_nan,
    hidden_rows,
    nan_finding,
    ranges_without_nan,
    undeclared_outputs,
)
from convkit.worker.reference.passed_nan import passes_nan
from convkit.worker.reference.refused_cases import explain_refusal
from convkit.worker.reference.repeated_rows import FewRows, few_rows
from convkit.worker.runtime_interface.sessions import RunFailedError


class LadderRun:
    """Runs cases, and collects what their outputs say of the original."""

    def __init__(self, calls: OriginalCalls, denormals: DenormalWatch) -> None:
        self._calls = calls
        self._denormals = denormals
        self._odd_outputs: set[tuple[str, str]] = set()
        self.findings: list[Finding] = []
        # What the original leaves undefined of cases that were run.
        self.left_out: list[OmittedCase] = []

    def run(
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
            few = few_rows(self._calls.made_from, case, decisions) if largest else None
            cost = case_cost(self._calls.contract, case.sizes if few is None else few.sizes)
            if (reason := budget.refusal(case.name, cost)) is not None:
                omitted.append(OmittedCase(case.name, reason))
                continue
            self._calls.context.progress(f"original model: {case.name}", done=done / len(cases))
            record = self._ladder_case(case, few)
            if isinstance(record, OmittedCase):
                omitted.append(record)
                continue
            records[place] = record
            budget.record(cost, record.seconds)
        return [records[place] for place in sorted(records)]

    def _ladder_case(self, case: Case, few: FewRows | None) -> CaseRecord | OmittedCase:
        if few is not None and (record := self._with_few_rows(few)) is not None:
            return record
        feeds = case.inputs()
        try:
            with self._denormals.case(case.name):
                outputs, seconds = self._calls.run(feeds, case.expected)
        except RunFailedError as error:
            if (fewer := with_defined_rows(case, self._calls.original.run)) is not None:
                self.left_out += fewer[1]
                return self._ladder_case(fewer[0], None)
            if case.may_be_refused:
                return OmittedCase(case.name, f"the original refuses it: {error}")
            literal = self._literal_size(case, feeds)
            restricted = (
                [literal] if literal else restricted_axes(self._calls.contract, self._calls.accepts)
            )
            raise StageFailedError(
                explain_refusal(self._calls, case, feeds, error), restricted
            ) from error
        if case.may_be_nan and any(map(count_nan, outputs.values())):
            if (fewer := with_defined_rows(case, self._calls.original.run)) is not None:
                self.left_out += fewer[1]
                return self._ladder_case(fewer[0], None)
            return OmittedCase(case.name, "the original returns NaN")
        return self._recorded(case, feeds, outputs, seconds)

    def _with_few_rows(self, few: FewRows) -> CaseRecord | None:
        """Run a case with few rows, repeated; None if all of them must run."""
        started = time.perf_counter()
        kept = self._calls.earlier.find(few.repeated.inputs())
        outputs = few.outputs(self._calls.original.run) if kept is None else kept[0]
        if outputs is None:
            return None
        seconds = time.perf_counter() - started if kept is None else kept[1]
        record = self._recorded(few.repeated, few.repeated.inputs(), outputs, seconds)
        return dataclasses.replace(record, row_order=few.order)

    def _recorded(self, case: Case, feeds: Feeds, outputs: Feeds, seconds: float) -> CaseRecord:
        passed_on = passes_nan(feeds, outputs, self._calls.original.run)
        self._check_outputs(case, outputs, passed_on=passed_on)
        self._calls.write(case, feeds, outputs)
        return CaseRecord(
            *(case.name, case.kind, case.description, case.sizes, seconds), passes_nan=passed_on
        )

    def _check_outputs(self, case: Case, outputs: Feeds, *, passed_on: bool) -> None:
        """Report NaN that is not passed on at each case, and outputs that differ from the declared
        ones at the first.
        """
        original = self._calls.original
        origin = (
            functools.partial(original.nan_origin, case.inputs())
            if isinstance(original, TorchOriginal)
            else None
        )
        narrower = functools.partial(ranges_without_nan, self._calls.made_from, original.run)
        ranges = narrower if case.name == "extreme" else dict
        if not passed_on:
            hidden = functools.partial(
                hidden_rows, self._calls.made_from, case.inputs(), original.run
            )
            found = nan_finding(self._calls.contract, case, outputs, origin, ranges, hidden)
            self.findings += [found] if found is not None else []
        for finding in undeclared_outputs(self._calls.contract, case, outputs):
            shaped = finding.code == "C207"
            literal = self._literal_size(case, case.inputs()) if shaped else None
            self._note(literal or finding)

    def _literal_size(self, case: Case, feeds: Feeds) -> Finding | None:
        if not isinstance(self._calls.original, TorchOriginal):
            return None
        return self._calls.original.literal_size(feeds, case.sizes)

    def _note(self, finding: Finding) -> None:
        key = (finding.code, finding.place.tensor or "")
        if key not in self._odd_outputs:
            self._odd_outputs.add(key)
            self.findings.append(finding)

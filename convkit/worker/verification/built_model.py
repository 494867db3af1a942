"""Runs one built model on the reference's cases."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    InvarianceMetrics,
    Layout,
    OmittedCase,
    ProbeChange,
    ProbeMetrics,
    ResultMetrics,
    SimulatedCase,
    TensorMetrics,
    UnpaddedMetrics,
    VerifyRequest,
    is_at_decisions,
    low_type_of,
)
from convkit.worker.cases.case import Feeds, case_cost
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.equal_scores import (
    ScoredPlaces,
    read_open,
    read_scores,
    with_open,
    with_settled,
)
from convkit.worker.cases.invariance_cases import BASE, CHECKS, take_rows
from convkit.worker.cases.plain_rows import FAINT, HUGE, OFFSET
from convkit.worker.cases.time_budget import Budget, running_order
from convkit.worker.cases.values.padding_masks import output_padding, padding_positions
from convkit.worker.job_context import Context
from convkit.worker.metrics.lost_information import Spread, measure_spread
from convkit.worker.metrics.open_order import OpenOrder, open_orders
from convkit.worker.metrics.row_sets import align_rows, compare_outputs, largest_output_difference
from convkit.worker.metrics.score_steps import Steps, find_steps
from convkit.worker.metrics.tensor_metrics import compare, largest_difference
from convkit.worker.pre_and_postprocessing.result_metrics import result_metrics
from convkit.worker.reference.case_agreement import compare_cases
from convkit.worker.runtime_interface.sessions import NotServedError, RunFailedError, Runnable

# Why a target of low precision is not judged by a case.
_COARSE = "its values are neighbors in their type, which a lower precision does not tell apart"
_TOO_FAR = "a lower precision need not hold a value that far from all others"
_TOO_SMALL = "a lower precision need not hold values that small"


class BuiltModel:
    """One built model, measured against one reference. `spreads` and `results` fill as the ladder
    runs.
    """

    def __init__(
        self,
        request: VerifyRequest,
        session: Runnable,
        found: Contract,
        context: Context,
        layout: Layout,
    ) -> None:
        self._contract = request.contract
        self._reference = Path(request.reference)
        self._budget = Budget(request.budget_seconds)
        self._session = session
        self._input_names = {spec.name for spec in found.inputs}
        self._context = context
        self._layout = layout
        self._low = low_type_of(request.precision)
        self._steps: Mapping[str, Steps] = {}
        self.spreads: list[Spread] = []
        self.open_orders: list[OpenOrder] = []
        self.results: list[ResultMetrics] = []

    def ladder(self, cases: Sequence[CaseRecord]) -> tuple[list[CaseMetrics], list[OmittedCase]]:
        """Run the ladder within the budget; return metrics in its order, and omitted cases."""
        limited = self._budget.seconds is not None
        order = running_order([case.name for case in cases]) if limited else range(len(cases))
        self._steps = find_steps(self.expected(case.name) for case in cases)
        measured: dict[int, CaseMetrics] = {}
        omitted: list[OmittedCase] = []
        for done, place in enumerate(order):
            case = cases[place]
            cost = case_cost(self._contract, case.sizes)
            if self._low is not None and (reason := _beyond(case.name)) is not None:
                omitted.append(OmittedCase(case.name, reason, applies=False))
                continue
            if (reason := self._budget.refusal(case.name, cost)) is not None:
                omitted.append(OmittedCase(case.name, reason))
                continue
            self._context.progress(f"built model: {case.name}", done=done / len(cases))
            try:
                measured[place] = self._case(case)
            except NotServedError as error:
                omitted.append(OmittedCase(case.name, str(error)))
                continue
            self._budget.record(cost, measured[place].seconds)
        return [measured[place] for place in sorted(measured)], omitted

    def _case(self, case: CaseRecord) -> CaseMetrics:
        feeds = self.feeds(case.name)
        started = time.perf_counter()
        try:
            outputs = self._session.run(feeds)
        except NotServedError:
            raise
        except RunFailedError as error:
            return CaseMetrics(case.name, time.perf_counter() - started, (), str(error))
        seconds = time.perf_counter() - started
        # The contract check reports outputs that the built model lost. An output missing here fails
        # the case.
        specs = {spec.name: spec for spec in self._contract.outputs}
        expected = self.expected(case.name)
        are_open = read_open(self._reference, case.name, self._contract.outputs, self._low)
        settled = with_settled(outputs, expected, self._scores(case.name))
        judged = with_open(settled, expected, are_open)
        if self._low is None:
            self.open_orders += open_orders(case.name, expected, outputs, judged)
        outputs = {**judged}
        padding = {name: self.padding(feeds, name) for name in expected}
        metrics = compare_outputs(
            self._contract,
            expected,
            outputs,
            padding.get,
            nan_agrees=case.passes_nan,
            steps=self._steps,
        )
        self.results += result_metrics(self._contract, case.name, expected, outputs)
        unpadded: list[UnpaddedMetrics] = []
        for measured in metrics:
            name, values = measured.output, expected[measured.output]
            if specs[name].mask is None and measured.rows is None:
                unpadded += self._unpadded(measured, feeds, values, outputs[name])
            rows = self._layout.rows is not None and specs[name].shape[:1] == (self._layout.rows,)
            if (
                spread := measure_spread(
                    case.name, name, values, outputs[name], padding[name], rows=rows
                )
            ) is not None:
                self.spreads.append(spread)
        return CaseMetrics(case.name, seconds, metrics, unpadded=tuple(unpadded))

    def _unpadded(
        self, metrics: TensorMetrics, feeds: Feeds, expected: np.ndarray, found: np.ndarray
    ) -> Iterator[UnpaddedMetrics]:
        """Measure an output without padding if its worst element is at padding."""
        masks = {spec.name: spec.padding for spec in self._contract.inputs}
        for mask in self._layout.masks:
            padding = padding_positions(feeds, mask, masks[mask])
            if (
                padding is not None
                and len(metrics.worst_index) >= padding.ndim
                and expected.shape[: padding.ndim] == padding.shape
                and padding[metrics.worst_index[: padding.ndim]]
            ):
                yield UnpaddedMetrics(mask, compare(metrics.output, expected, found, padding))
                return

    def probes(self, cases: Sequence[CaseRecord]) -> list[ProbeMetrics]:
        """Measure every probe; the base case's outputs, which are small, are kept in memory."""
        bases: dict[str, tuple[Feeds, Feeds | None]] = {}
        base_errors: dict[str, float | None] = {}
        measured = []
        for done, probe in enumerate(cases):
            if probe.base is None:
                bases[probe.name] = (self.expected(probe.name), self.outputs(probe.name))
                base_errors[probe.name] = self._difference(*bases[probe.name])
                measured += _output_probes(*bases[probe.name])
                continue
            self._context.progress(f"built model: {probe.name}", done=done / len(cases))
            expected_base, found_base = bases[probe.base]
            expected = self.expected(probe.name) if probe.runnable else None
            found = self.outputs(probe.name)
            measured.append(
                ProbeMetrics(
                    probe=probe.name,
                    moved_reference=self._difference(expected_base, expected),
                    moved_candidate=self._difference(found_base, found),
                    matches_base=self._difference(expected_base, found),
                    matches_probe=self._difference(expected, found_base),
                    base_error=base_errors[probe.base],
                    change=probe.change,
                    moved_share=self._share(expected_base, expected),
                )
            )
        return measured

    def invariance(
        self, cases: Sequence[CaseRecord]
    ) -> tuple[list[InvarianceMetrics], list[OmittedCase]]:
        """Run the small invariance cases if the budget allows all of them, and measure which
        outputs change.
        """
        cost = sum(case_cost(self._contract, case.sizes) for case in cases)
        if (reason := self._budget.refusal(BASE, cost)) is not None:
            return [], [OmittedCase(case.name, reason) for case in cases if case.base is not None]
        found: dict[str, Feeds] = {}
        measured: list[InvarianceMetrics] = []
        omitted: list[OmittedCase] = []
        started = time.perf_counter()
        for case in cases:
            self._context.progress(f"built model: {case.name}")
            try:
                found[case.name] = self._session.run(self.feeds(case.name))
            except RunFailedError as error:
                omitted.append(OmittedCase(case.name, f"the built model refuses it: {error}"))
                continue
            if case.base is None:
                continue
            if case.base not in found:
                omitted.append(
                    OmittedCase(case.name, f"the built model refuses {case.base!r}, its base")
                )
                continue
            measured.append(
                InvarianceMetrics(
                    check=CHECKS[case.name],
                    case=case.name,
                    base=case.base,
                    original=self._unchanged(
                        case, self.expected(case.base), self.expected(case.name)
                    ),
                    candidate=self._unchanged(case, found[case.base], found[case.name]),
                )
            )
        self._budget.record(cost, time.perf_counter() - started)
        return measured, omitted

    def _difference(self, reference: Feeds | None, candidate: Feeds | None) -> float | None:
        if reference is None or candidate is None:
            return None
        return largest_output_difference(self._contract, reference, candidate)

    def _share(self, base: Feeds, moved: Feeds | None) -> float | None:
        if moved is None:
            return None
        before, after = align_rows(self._contract, base, moved)
        shares = (
            largest_difference({name: values}, {name: after[name]}) / size
            for name, values in before.items()
            if values.dtype.kind in "biuf"
            and (size := float(np.linalg.norm(values.ravel())) / math.sqrt(max(values.size, 1))) > 0
        )
        return max(shares, default=math.inf)

    def _unchanged(self, case: CaseRecord, base: Feeds, other: Feeds) -> tuple[TensorMetrics, ...]:
        assert case.base is not None
        # The inputs as the original received them, including any that the built model lost: masks
        # may be among them.
        feeds = read_tensors(self._reference, case.base, "inputs", self._contract.inputs)
        return compare_cases(CHECKS[case.name], self._contract, self._layout, feeds, base, other)

    def beside_simulation(
        self, simulation: Runnable, cases: Sequence[CaseMetrics]
    ) -> tuple[SimulatedCase, ...]:
        """Run the cases that ran on the device in the simulation as well."""
        from convkit.worker.metrics.device_comparison import compare_with_simulation

        return compare_with_simulation(
            self._contract,
            self._session,
            simulation,
            [case.case for case in cases if case.error is None],
            self.feeds,
            self.expected,
            self.padding,
        )

    def padding(self, feeds: Mapping[str, np.ndarray], output: str) -> np.ndarray | None:
        """Return the positions at which an output is meaningless, given a case's inputs."""
        spec = next(spec for spec in self._contract.outputs if spec.name == output)
        return output_padding(feeds, self._contract, spec)

    def _scores(self, case: str) -> dict[str, ScoredPlaces]:
        return read_scores(self._reference, case, self._contract.outputs)

    def expected(self, case: str) -> Feeds:
        """Return the original's outputs in a case."""
        return read_tensors(self._reference, case, "outputs", self._contract.outputs)

    def outputs(self, case: str) -> Feeds | None:
        """Return the built model's outputs; None if it rejects the inputs, which is allowed: probes
        need not be legal.
        """
        try:
            return self._session.run(self.feeds(case))
        except RunFailedError:
            return None

    def run_alone(self, case: str, rows: str, number: int) -> Feeds | None:
        """Return the outputs for one row of a case; None if the built model rejects it."""
        feeds = take_rows(self._contract.inputs, rows, self._inputs(case), [number])
        try:
            return self._session.run({n: feeds[n] for n in feeds if n in self._input_names})
        except RunFailedError:
            return None

    def feeds(self, case: str) -> Feeds:
        """Return a case's inputs by name, except those that the built model lost, which the
        contract check reports.
        """
        return {
            name: values for name, values in self._inputs(case).items() if name in self._input_names
        }

    def _inputs(self, case: str) -> Feeds:
        return read_tensors(self._reference, case, "inputs", self._contract.inputs)


def _beyond(case: str) -> str | None:
    """Return why a low precision is not judged by a case; None if it is."""
    if is_at_decisions(case):
        return _COARSE
    if case.startswith(FAINT):
        return _TOO_SMALL
    return _TOO_FAR if case.startswith((HUGE, OFFSET)) else None


def _output_probes(expected: Feeds, found: Feeds | None) -> list[ProbeMetrics]:
    """Compare each output with the original's of the same name and, for pairs of one type and
    shape, with each other's.

    `matches_base` is small if the built model returns one output under the other's name.
    """
    measured = []
    for first, second in itertools.combinations(expected, 2):
        pair = {first: expected[first], second: expected[second]}
        alike = pair[first].dtype == pair[second].dtype and pair[first].shape == pair[second].shape
        if found is None or not alike or first not in found or second not in found:
            continue
        crossed = {first: found[second], second: found[first]}
        apart = largest_difference({first: pair[first]}, {first: pair[second]})
        change = ProbeChange("outputs", (first, second))
        measured.append(
            ProbeMetrics(
                probe=change.name,
                moved_reference=apart,
                moved_candidate=None,
                matches_base=largest_difference(pair, crossed),
                matches_probe=None,
                base_error=largest_difference(pair, found),
                change=change,
            )
        )
    return measured

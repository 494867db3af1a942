"""Runs the original in loops: what the calls of a built model are compared with. First, the
original itself must give the same in many calls as in one.
"""

import itertools
import time
from collections.abc import Sequence

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseRecord, OmittedCase, Steps, TensorMetrics, call_name
from convkit.worker.cases.case import CaseInputs, Feeds, case_cost, sizes_text
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.time_budget import Budget
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.reference.original_model import OriginalModel
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.call_agreement import (
    against_one_pass,
    against_row_alone,
    row_alone,
    share,
    worst,
)
from convkit.worker.steps.call_inputs import Loop, build_loops, run_calls
from convkit.worker.steps.greedy_choice import greedy_scores
from convkit.worker.steps.loop_changes import MOST_EXCHANGES, Exchange, exchanges

# The relative difference (RMS over RMS) between many calls and one from which the original counts
# as disagreeing with itself: sums in a different order stay far below it.
_NOISE = 1e-3
_HALF_NOISE = 0.05


class ReferenceSteps:
    """Runs the loops, writes their tensors, and collects findings along the way."""

    def __init__(
        self, original: OriginalModel, made_from: CaseInputs, steps: Steps, context: Context
    ) -> None:
        self._original = original
        self._made_from = made_from
        self._steps = steps
        self._context = context
        self.records: list[CaseRecord] = []
        self.omitted: list[OmittedCase] = []
        self.findings: list[Finding] = []

    def run(self, budget: Budget, *, half: bool) -> None:
        """Run every loop within the budget, and the variants that explain what is wrong.

        Raises StageFailedError if the original rejects a call of the first loop.
        """
        loops, omitted = build_loops(self._made_from, self._steps)
        self.omitted += [OmittedCase(name, reason) for name, reason in omitted.items()]
        for loop in loops:
            contract = loop.contract
            cost = sum(case_cost(contract, call.sizes) for call in loop.calls)
            if (reason := budget.refusal(loop.name, cost)) is not None:
                self.omitted.append(OmittedCase(loop.name, reason))
                continue
            self._context.progress(f"original model: {loop.name}")
            started = time.perf_counter()
            found = self._loop(loop)
            if found is None:
                continue
            budget.record(cost, time.perf_counter() - started)
            # One loop in which the original disagrees with itself is enough to say so.
            if loop.steps.axis is not None and not any(each.is_error for each in self.findings):
                self._check(loop, found, _HALF_NOISE if half else _NOISE)
            if loop.name == "steps":
                self._variants(loop)

    def _loop(self, loop: Loop) -> list[Feeds] | None:
        """Run a loop and write it; None if the original rejects one that need not work."""
        inputs = [loop.inputs(call) for call in loop.calls]
        started = time.perf_counter()
        try:
            found = list(run_calls(self._original.run, inputs, loop.first, self._steps))
        except RunFailedError as error:
            if loop.name != "steps":
                self.omitted.append(OmittedCase(loop.name, f"the original refuses it: {error}"))
                return None
            sizes = ", then ".join(sizes_text(call.sizes) for call in loop.calls[:2])
            raise StageFailedError(
                f"steps: the original refuses to be called in a loop ({sizes}): {error}. Check"
                " steps.feeds and the axes"
            ) from error
        seconds = (time.perf_counter() - started) / len(loop.calls)
        for call, own, outputs in zip(loop.calls, inputs, found, strict=True):
            given = own if call.number else {**own, **loop.first}
            what = f"{loop.description}: {'first call' if not call.number else 'next call'}"
            self._write(loop.name, call.number, what, call.sizes, given, outputs, seconds)
        return found

    def _write(
        self,
        loop: str,
        number: int,
        description: str,
        sizes: dict[str, int],
        inputs: Feeds,
        outputs: Feeds,
        seconds: float = 0.0,
    ) -> None:
        name = call_name(loop, number)
        write_tensors(self._context.output, name, "inputs", inputs)
        write_tensors(self._context.output, name, "outputs", outputs)
        base = call_name(loop, number - 1) if number else None
        what = f"{description} ({sizes_text(sizes)})"
        self.records.append(CaseRecord(name, "step", what, sizes, seconds, base))

    def _check(self, loop: Loop, found: Sequence[Feeds], noise: float) -> None:
        """Compare many calls with one, and a padded row with the row alone."""
        try:
            whole = self._original.run({**loop.whole, **loop.first})
        except RunFailedError as error:
            reason = f"the original refuses one pass over all positions: {error}"
            self.omitted.append(OmittedCase(f"{loop.name}:one-pass", reason))
            return
        measured = against_one_pass(loop, found, whole)
        if not share(worst(measured)) <= noise:
            exchange = self._exchanged(loop, whole, noise)
            self.findings.append(_disagrees(loop, worst(measured), exchange))
            return
        if (row := row_alone(loop)) is not None:
            number, pad, inputs = row
            try:
                alone = self._original.run(inputs)
            except RunFailedError:
                return  # one row may be too few for it
            moved = worst(against_row_alone(loop, whole, alone, number, pad))
            if not share(moved) <= noise:
                self.findings.append(_moved_by_padding(moved, pad))

    def _exchanged(self, loop: Loop, whole: Feeds, noise: float) -> Exchange | None:
        """Return the exchange of fed tensors with which many calls give the same as one."""
        inputs = [loop.inputs(call) for call in loop.calls]
        for exchange in itertools.islice(exchanges(loop.contract, self._steps), MOST_EXCHANGES):
            calls = run_calls(
                self._original.run, inputs, loop.first, self._steps, inward=exchange.on_fed
            )
            changed = list(calls)
            if share(worst(against_one_pass(loop, changed, whole))) <= noise:
                return exchange
        return None

    def _variants(self, loop: Loop) -> None:
        """Run greedy generation, and the loop without its state if shapes allow."""
        inputs = [loop.inputs(call) for call in loop.calls]
        if self._steps.scores is not None:
            scored = greedy_scores(self._original.run, inputs, loop.first, self._steps)
            for call, scores in zip(loop.calls, scored, strict=True):
                found = {self._steps.scores: scores}
                what = "scores of the tokens, the best of which is fed back"
                self._write("steps-greedy", call.number, what, call.sizes, {}, found)
        if not self._steps.grows:
            reset = run_calls(
                self._original.run,
                inputs,
                loop.first,
                self._steps,
                inward=lambda number, feeds: {**feeds, **loop.first} if number else feeds,
            )
            for call, outputs in zip(loop.calls, reset, strict=True):
                what = "every call from the first state, as an explanation"
                self._write("steps-reset", call.number, what, call.sizes, {}, outputs)


def _disagrees(loop: Loop, found: TensorMetrics, exchange: Exchange | None) -> Finding:
    text = (
        f"the original gives {found.output!r} in {len(loop.calls)} calls ({loop.name!r}) unlike in "
        f"one call over all positions: {found.mismatch or f'they differ by {found.max_abs:.3g}'}"
    )
    place = Place(tensor=found.output, case=call_name(loop.name, len(loop.calls) - 1))
    evidence = {"max_abs": found.max_abs, "share_of_rms": share(found)}
    if exchange is None:
        remedy = Remedy(
            "Check steps.feeds and steps.axis, and that masks and positions count the past:"
            " attention_mask over past + sequence, position_ids with sample: positions."
        )
        return Finding("C501", text, place, evidence, remedy)
    names = ", ".join(f"{one.output} and {other.output}" for one, other in exchange.pairs)
    feeds = ", ".join(
        f"{one.output}: {other.input}, {other.output}: {one.input}" for one, other in exchange.pairs
    )
    return Finding(
        "C502" if exchange.of_layers else "C503",
        f"{text}. steps.feeds exchanges {names}: fed in the opposite order, they agree",
        Place(tensor=exchange.pairs[0][0].output, case=place.case),
        {**evidence, "proven": True, "kind": "layers" if exchange.of_layers else "parts"},
        Remedy(f"Feed these outputs in the opposite order, under steps.feeds: {feeds}."),
    )


def _moved_by_padding(moved: TensorMetrics, pad: int) -> Finding:
    return Finding(
        "N305",
        f"{pad} positions of padding on the left move the original's {moved.output!r} by up to"
        f" {moved.max_abs:.3g} ({share(moved):.1%} of its rms), compared with the row alone",
        Place(tensor=moved.output, case="steps-padded"),
        {"max_abs": moved.max_abs, "share_of_rms": share(moved)},
        Remedy(
            "Give positions as an input (position_ids, sample: positions) that counts real"
            " positions only, or pad on the right."
        ),
    )

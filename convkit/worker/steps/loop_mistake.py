"""Why a built model's error appears from one call to the next: undoes one mistake at a time, until
the error vanishes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from convkit.protocol.contract import Contract, dimension_axes
from convkit.protocol.messages import CaseMetrics, Feed, Steps, StepTrial
from convkit.worker.cases.case import Feeds
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.built_steps import BuiltSteps, StoredLoop
from convkit.worker.steps.call_agreement import share
from convkit.worker.steps.call_inputs import Change, run_calls, unchanged
from convkit.worker.steps.loop_changes import MOST_EXCHANGES, Exchange, exchanges

# An error that is this many times the first call's has a cause in the loop. Below the floor, it is
# rounding; the first call itself is off from the ceiling on.
_GROWTH = 20.0
_FLOOR = 1e-5
_CEILING = 0.02
# A correction that leaves more than this share of the error corrects something else.
_LEFT = 0.1
# Calls after the one in which the error appears, in which it must stay away.
_FURTHER = 2


class StepExplanation:
    """The search for the cause of one loop's error."""

    def __init__(
        self, built: BuiltSteps, contract: Contract, steps: Steps, loop: StoredLoop
    ) -> None:
        self._built = built
        self._contract = contract
        self._steps = steps
        self._loop = loop
        self._step = 0
        self._error = 0.0

    def search(
        self, measured: Sequence[CaseMetrics], reset: Sequence[Feeds] | None
    ) -> list[StepTrial]:
        """Return the correction that removes the error, if there is one.

        `reset` are the outputs of the original if every call starts from the first state.
        """
        step = first_divergent_call(measured)
        if step is None:
            return []
        self._step = step
        self._error = _worst(measured[step])
        for trial in self._trials(reset):
            if self._removes(trial):
                return [trial]
        return []

    def _removes(self, trial: StepTrial) -> bool:
        ran = len(trial.cases) > self._step and all(each.error is None for each in trial.cases)
        return ran and self._is_small(max(map(_worst, trial.cases)))

    def _trials(self, reset: Sequence[Feeds] | None) -> Iterator[StepTrial]:
        """Yield corrections, the more specific cause first."""
        yield from self._positions()
        wrong = self._errors_on_original_inputs()
        likely = (each for each in self._exchanges() if self._are_crossed(each, wrong))
        for exchange in itertools.islice(likely, MOST_EXCHANGES):
            cases = self._run(outward=_always(exchange.on_outputs))
            yield self._exchanged(exchange, "output", cases)
        if wrong:
            yield self._carried(list(wrong))
        if reset is not None:
            yield self._reset(reset)
        if self._step == 0 and self._steps.grows:
            return  # nothing was fed yet
        likely = (each for each in self._exchanges() if _may_be_read_wrong(each, wrong))
        for exchange in itertools.islice(likely, MOST_EXCHANGES):
            cases = self._run(_always(exchange.on_inputs))
            yield self._exchanged(exchange, "input", cases)

    def _exchanges(self) -> Iterator[Exchange]:
        return exchanges(self._contract, self._steps)

    def _exchanged(
        self, exchange: Exchange, side: Literal["input", "output"], cases: tuple[CaseMetrics, ...]
    ) -> StepTrial:
        names = tuple(feed.output if side == "output" else feed.input for feed in exchange.feeds)
        return StepTrial("layers" if exchange.of_layers else "parts", names, self._step, cases)

    def _are_crossed(self, exchange: Exchange, wrong: Mapping[Feed, np.ndarray]) -> bool:
        """Say whether each of these outputs is what the original has under the other's name."""
        expected = self._loop.expected[self._step]
        return all(
            one in wrong
            and other in wrong
            and self._is_small(share(compare(one.output, expected[other.output], wrong[one])))
            and self._is_small(share(compare(one.output, expected[one.output], wrong[other])))
            for one, other in exchange.pairs
        )

    def _is_small(self, error: float) -> bool:
        return error <= max(_FLOOR, _LEFT * self._error)

    def _positions(self) -> Iterator[StepTrial]:
        names = self._steps.positions
        for shift in (-1, 1) if names and self._step else ():

            def shifted(number: int, feeds: Feeds, by: int = shift) -> Feeds:
                moved = {name: np.maximum(feeds[name] + by, 0) for name in names}
                return {**feeds, **moved} if number else feeds

            yield StepTrial("positions", names, self._step, self._run(shifted), shift)

    def _errors_on_original_inputs(self) -> dict[Feed, np.ndarray]:
        """Return the outputs that are off although the call got the original's tensors."""
        outputs = self._outputs_on_original_inputs(self._step)
        if outputs is None:
            return {}
        measured = self._built.compared(self._loop, self._step, outputs)
        off = {each.output for each in measured if not self._is_small(share(each))}
        return {feed: outputs[feed.output] for feed in self._steps.feeds if feed.output in off}

    def _outputs_on_original_inputs(self, number: int) -> Feeds | None:
        """Return a call's outputs on the original's tensors; None if the call fails."""
        feeds = {**self._loop.inputs[number], **self._loop.first}
        try:
            return self._built.call(self._originals(self._steps.feeds)(number, feeds))
        except RunFailedError:
            return None

    def _carried(self, wrong: Sequence[Feed]) -> StepTrial:
        """Feed the original's tensors in place of the wrong ones."""
        names = tuple(feed.output for feed in wrong)
        cases = self._run(self._originals(wrong), leaving=names)
        stale = all(self._is_stale(feed) for feed in wrong)
        return StepTrial("stale" if stale else "updated", names, self._step, cases)

    def _originals(self, feeds: Sequence[Feed]) -> Change:
        def given(number: int, tensors: Feeds) -> Feeds:
            if number == 0:
                return tensors
            expected = self._loop.expected[number - 1]
            return {**tensors, **{feed.input: expected[feed.output] for feed in feeds}}

        return given

    def _is_stale(self, feed: Feed) -> bool:
        """Say whether an output lacks what the call added: it is what was fed, or its new part is
        zero or repeats what was there.
        """
        number = max(self._step, 1)
        given = self._originals([feed])(number, {})[feed.input]
        outputs = self._outputs_on_original_inputs(number)
        if outputs is None:
            return False
        found = outputs[feed.output]
        if found.shape == given.shape:
            return np.array_equal(found, given)
        spec = next(spec for spec in self._contract.outputs if spec.name == feed.output)
        grown = next(
            place
            for place, dimension in enumerate(spec.shape)
            if set(self._steps.grows) & set(dimension_axes(dimension))
        )
        length = found.shape[grown] - given.shape[grown]
        if length <= 0:
            return True
        new = np.take(found, range(-length, 0), grown)
        old = np.take(given, range(-min(length, given.shape[grown]), 0), grown)
        return not new.any() or np.array_equal(new, old)

    def _reset(self, reset: Sequence[Feeds]) -> StepTrial:
        """Compare with the original that forgets: agreement proves that the model does, too."""
        loop = dataclasses.replace(self._loop, expected=tuple(reset))
        names = tuple(feed.input for feed in self._steps.feeds)
        return StepTrial("reset", names, self._step, self._run(against=loop))

    def _run(
        self,
        inward: Change = unchanged,
        outward: Change = unchanged,
        *,
        leaving: Collection[str] = (),
        against: StoredLoop | None = None,
    ) -> tuple[CaseMetrics, ...]:
        """Measure the loop with changes, up to a few calls after the error appears."""
        loop = against or self._loop
        stop = self._step + 1 + _FURTHER
        calls = run_calls(
            self._built.call,
            loop.inputs[:stop],
            loop.first,
            self._steps,
            inward=inward,
            outward=outward,
        )
        cases: list[CaseMetrics] = []
        try:
            for number, outputs in enumerate(calls):
                metrics = self._built.compared(loop, number, outputs, leaving)
                cases.append(CaseMetrics(loop.calls[number].name, 0.0, metrics))
        except RunFailedError as error:
            cases.append(CaseMetrics(loop.calls[len(cases)].name, 0.0, (), str(error)))
        return tuple(cases)


def _may_be_read_wrong(exchange: Exchange, wrong: Collection[Feed]) -> bool:
    """Say whether an exchange on the way in could make just these outputs wrong: a layer that reads
    another's tensors is wrong itself, or only those after it are.
    """
    first = min((feed.layer for feed in wrong if feed.layer is not None), default=None)
    return first is None or bool({feed.layer for feed in exchange.feeds} & {first - 1, first})


def first_divergent_call(measured: Sequence[CaseMetrics]) -> int | None:
    """Return the first call whose error is more than the first call's rounding explains."""
    if not measured[0].error and _worst(measured[0]) > _CEILING:
        return 0
    limit = max(_FLOOR, _GROWTH * _worst(measured[0]))
    for number, case in enumerate(measured[1:], 1):
        if case.error is None and _worst(case) > limit:
            return number
    return None


def _worst(case: CaseMetrics) -> float:
    return max((share(output) for output in case.outputs), default=float("inf"))


def _always(change: Callable[[Feeds], Feeds]) -> Change:
    def changed(number: int, tensors: Feeds) -> Feeds:
        del number
        return change(tensors)

    return changed

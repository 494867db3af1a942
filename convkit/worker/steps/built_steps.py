"""Runs a built model in loops, fed with its own outputs, against the original's calls."""

import dataclasses
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import CaseMetrics, CaseRecord, Steps, TensorMetrics
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.runtime_interface.sessions import RunFailedError, RuntimeSession
from convkit.worker.steps.call_inputs import fed_inputs, own_inputs, padding_of, run_calls


@dataclasses.dataclass(frozen=True)
class StoredLoop:
    """A loop of the reference: the calls' names and sizes, their own inputs, the first call's
    carried inputs, and the original's outputs.
    """

    name: str
    calls: tuple[CaseRecord, ...]
    inputs: tuple[Feeds, ...]
    first: Feeds
    expected: tuple[Feeds, ...]


class LoopReader:
    """Reads the loops of a reference."""

    def __init__(self, reference: Path, contract: Contract, steps: Steps) -> None:
        self._root = reference
        self.contract = contract
        self.steps = steps

    def loop(self, name: str, calls: Sequence[CaseRecord]) -> StoredLoop:
        """Return a loop, memory-mapped."""
        own, fed = (part(self.contract, self.steps) for part in (own_inputs, fed_inputs))
        return StoredLoop(
            name,
            tuple(calls),
            tuple(read_tensors(self._root, call.name, "inputs", own) for call in calls),
            read_tensors(self._root, calls[0].name, "inputs", fed),
            tuple(self.outputs(call.name, self.contract.outputs) for call in calls),
        )

    def outputs(self, call: str, specs: tuple[TensorSpec, ...]) -> Feeds:
        """Return the original's outputs in a call."""
        return read_tensors(self._root, call, "outputs", specs)


class BuiltSteps:
    """One built model in loops."""

    def __init__(
        self, session: RuntimeSession, found: Contract, contract: Contract, steps: Steps
    ) -> None:
        self._session = session
        self._input_names = {spec.name for spec in found.inputs}
        self._contract = contract
        self._steps = steps

    def call(self, feeds: Feeds) -> Feeds:
        """Run one call, without inputs that the built model lost; raises RunFailedError."""
        given = {name: values for name, values in feeds.items() if name in self._input_names}
        outputs = self._session.run(given)
        lost = [feed.output for feed in self._steps.feeds if feed.output not in outputs]
        if lost:
            raise RunFailedError(f"the model has no output {lost[0]!r} to feed to the next call")
        return outputs

    def run(self, loop: StoredLoop) -> list[CaseMetrics]:
        """Measure a loop's calls until one fails: the following ones have nothing to feed them."""
        measured: list[CaseMetrics] = []
        calls = run_calls(self.call, loop.inputs, loop.first, self._steps)
        for number, record in enumerate(loop.calls):
            started = time.perf_counter()
            try:
                outputs = next(calls)
            except RunFailedError as error:
                spent = time.perf_counter() - started
                return [*measured, CaseMetrics(record.name, spent, (), str(error))]
            spent = time.perf_counter() - started
            measured.append(CaseMetrics(record.name, spent, self.compared(loop, number, outputs)))
        return measured

    def compared(
        self, loop: StoredLoop, number: int, outputs: Feeds, leaving: Collection[str] = ()
    ) -> tuple[TensorMetrics, ...]:
        """Measure a call's outputs, without those in `leaving` and without what is at padding."""
        metrics = []
        for spec in self._contract.outputs:
            if spec.name not in outputs or spec.name in leaving:
                continue  # as in the ladder: a case without an output is incomplete
            one, other = loop.expected[number][spec.name], outputs[spec.name]
            padded = padding_of(
                spec, self._contract, self._steps, loop.inputs[number], loop.calls[number].sizes
            )
            if padded is not None and padded.any() and padded.shape == one.shape == other.shape:
                # Nothing is promised there, not even that it is a number.
                one, other = np.array(one), np.array(other)
                one[padded] = other[padded] = 0
            metrics.append(compare(spec.name, one, other))
        return tuple(metrics)

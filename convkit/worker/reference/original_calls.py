"""Calls of the original: each is timed, takes over what an earlier reference has of the same
inputs, and is written for the targets.
"""

import time
from collections.abc import Callable

from convkit.protocol.contract import Contract
from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.largest_accepted_size import with_values_of
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import Context
from convkit.worker.reference.earlier_outputs import EarlierOutputs
from convkit.worker.reference.original_model import OriginalModel
from convkit.worker.runtime_interface.sessions import RunFailedError


class OriginalCalls:
    """Calls an original on inputs made from a contract's samples."""

    def __init__(
        self,
        original: OriginalModel,
        made_from: CaseInputs,
        context: Context,
        earlier: EarlierOutputs,
    ) -> None:
        self.original = original
        self.made_from = made_from
        self.context = context
        self.earlier = earlier

    @property
    def contract(self) -> Contract:
        """The contract of the inputs and outputs."""
        return self.made_from.contract

    def run(self, feeds: Feeds, expected: Callable[[], Feeds] | None = None) -> tuple[Feeds, float]:
        """Return the outputs and how long the call took, in seconds; `expected` computes them
        otherwise. Raises RunFailedError if the original refuses the inputs.
        """
        if expected is None and (kept := self.earlier.find(feeds)) is not None:
            return kept
        started = time.perf_counter()
        outputs = self.original.run(feeds) if expected is None else expected()
        return outputs, time.perf_counter() - started

    def runs(self, feeds: Feeds) -> bool:
        """Say whether the original accepts inputs."""
        try:
            self.original.run(feeds)
        except RunFailedError:
            return False
        return True

    def accepts(self, sizes: dict[str, int]) -> bool:
        """Say whether the original runs at some sizes, with drawn values or with accepted ones."""
        feeds = self.made_from.draw(sizes, Draw("smallest"))
        return self.runs(feeds) or self.runs(with_values_of(feeds, self.smallest()))

    def smallest(self) -> Feeds:
        """Return drawn inputs with every axis at its smallest."""
        return self.made_from.draw(smallest_sizes(self.contract), Draw("smallest"))

    def write(self, case: Case, feeds: Feeds, outputs: Feeds) -> None:
        """Write the inputs and outputs of a case."""
        write_tensors(self.context.output, case.name, "inputs", feeds)
        write_tensors(self.context.output, case.name, "outputs", outputs)

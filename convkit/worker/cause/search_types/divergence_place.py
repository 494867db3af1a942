"""The place where a graph diverges from its original."""

import dataclasses
from collections.abc import Mapping

from convkit.worker.cause.matching.axis_layouts import AxisLayout
from convkit.worker.cause.matching.value_matching import ValueMatch

# Errors up to this, relative to a tensor's RMS, can always be due to float32 arithmetic.
FLOOR = 2e-6
# Values this near, relative to a tensor's RMS, are what a formula or another value gives.
EQUAL = 1e-5
# The fraction of the outputs' error that may remain if a place explains it all.
REMAINS = 0.02


@dataclasses.dataclass(frozen=True)
class Parting:
    """A value of the graph that is wrong although all its inputs are correct.

    `value` is the original's value for it, in the layout `layout`. `known` are the values of the
    graph that match the original's, `local` is the error of this value computed from them alone.
    `before` and `after` are the outputs' errors of the unchanged graph, and with the original's
    value here; errors are relative to the RMS. `growth` leads from here to the outputs. `restored`
    are the later values that match the original's again with it, if another fault keeps the outputs
    wrong.
    """

    name: str
    value: int
    layout: AxisLayout
    known: Mapping[str, ValueMatch]
    local: float
    before: float
    after: float
    growth: tuple[tuple[str, float], ...] = ()
    restored: int = 0

    @property
    def is_proven(self) -> bool:
        """True if the original's value here removes the outputs' error."""
        remains = REMAINS * min(self.before, 1.0)  # infinity if the graph cannot run
        return self.after <= max(remains, 10 * FLOOR)

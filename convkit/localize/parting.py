"""The place at which a graph parts from its original."""

import dataclasses
from collections.abc import Mapping

from convkit.localize.matching import Layout, Match

# What float32 arithmetic can always explain, in parts of a tensor's rms.
FLOOR = 2e-6
# The share of the outputs' error that may remain where a place explains it all.
REMAINS = 0.02


@dataclasses.dataclass(frozen=True)
class Parting:
    """A value of the graph that is wrong although everything it is computed from is right.

    `value` is the original's value that belongs there, laid out by `layout`. `known` are the values
    of the graph that are the original's, `local` the error of this value computed from them alone.
    `before` and `after` are the outputs' errors as the graph is, and with the original's value
    here; errors are in parts of the rms. `growth` leads from here to the outputs. `restored` are
    the values below that are the original's again with it, where another fault keeps the outputs
    wrong.
    """

    name: str
    value: int
    layout: Layout
    known: Mapping[str, Match]
    local: float
    before: float
    after: float
    growth: tuple[tuple[str, float], ...] = ()
    restored: int = 0

    @property
    def is_proven(self) -> bool:
        """True where the original's value here makes the outputs' error vanish."""
        remains = REMAINS * min(self.before, 1.0)  # infinite where the graph cannot run
        return self.after <= max(remains, 10 * FLOOR)

"""The model's decisions on input sizes and values, which determine the sizes and values to try.

The comparisons themselves come from the original's Python (`models.sources.decisions`) or from a
graph (`models.graph.decisions`).
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from convkit.protocol.contract import Axis, Contract
from convkit.worker.cases.axis_sizes import largest_sizes, smallest_sizes
from convkit.worker.cases.decision_values import ValueDecision

Sizes = Mapping[str, int]
Formula = Callable[[Sizes], int]
# A comparison in code, by its line and its place in what that is compiled to.
Site = tuple[str, int]

COMPARISONS: dict[str, Callable[[object, object], bool]] = {
    name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}

# Every size up to so many is tried in a comparison; further ones at steps, then by bisection.
_DENSE = 512
_STEPS = 64
# A comparison that flips more often (a remainder) is tried on both sides of its first flips.
_MOST_TURNS = 2


@dataclasses.dataclass(frozen=True)
class SizeDecision:
    """A comparison of sizes. `holds` returns its outcome for axis sizes; it raises ArithmeticError
    if they do not determine it. `place` is its location: `file:line`, or a node.
    """

    place: str
    holds: Callable[[Sizes], bool] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class Threshold:
    """A value that an input's elements are compared with. `exact`: as they are, not scaled."""

    tensor: str
    value: float
    exact: bool
    place: str


@dataclasses.dataclass(frozen=True, eq=False)
class ValueBranch:
    """A branch on values in Python: inputs at some sizes for which it takes another side than for
    most. `place` is its `file:line`.
    """

    place: str
    sizes: dict[str, int]
    inputs: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions found, without duplicates."""

    sizes: tuple[SizeDecision, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    branches: tuple[ValueBranch, ...] = ()
    values: tuple[ValueDecision, ...] = ()
    # Lines that read a value of the inputs which matters, and that no legal input is known to part.
    untried: tuple[str, ...] = ()
    # Comparisons which matter, and that no legal input is known to turn to that side.
    conditions: tuple[tuple[Site, bool], ...] = ()
    # The same of a file that was made elsewhere: by node.
    nodes: tuple[tuple[Site, bool], ...] = ()
    # Rows of a table that a file has otherwise than the original.
    rows: tuple[int, ...] = ()

    def __add__(self, other: "Decisions") -> "Decisions":
        return Decisions(
            _distinct(itertools.chain(self.sizes, other.sizes)),
            _distinct(itertools.chain(self.thresholds, other.thresholds)),
            (*self.branches, *other.branches),
            (*self.values, *other.values),
            (*self.untried, *other.untried),
            (*self.conditions, *other.conditions),
            (*self.nodes, *other.nodes),
            (*self.rows, *other.rows),
        )


@dataclasses.dataclass(frozen=True)
class Turn:
    """Neighboring sizes of one axis on either side of a decision, the other axes as they are."""

    axis: str
    below: dict[str, int]
    above: dict[str, int]
    place: str


def turns(decision: SizeDecision, contract: Contract, base: Sizes) -> list[Turn]:
    """Return the sizes at which a decision changes within the axes' ranges, starting from the sizes
    `base`.

    If it does not change from there, the other axes are tried at their minimum and maximum.
    """
    found: list[Turn] = []
    for others in (base, smallest_sizes(contract), largest_sizes(contract)):
        for axis in contract.axes:
            found += _turns_along(axis, decision, others)
        if found:
            break
    return found


def _turns_along(axis: Axis, decision: SizeDecision, others: Sizes) -> list[Turn]:
    def outcome(size: int) -> bool | None:
        try:
            return decision.holds({**others, axis.name: size})
        except ArithmeticError:
            return None

    found: list[Turn] = []
    for ends in itertools.pairwise(_tried(axis)):
        low, high = ends
        first = outcome(low)
        if first is outcome(high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if outcome(middle) is first else (low, middle)
        below, above = ({**others, axis.name: size} for size in (low, high))
        found.append(Turn(axis.name, below, above, decision.place))
        if len(found) == _MOST_TURNS:
            break
    return found


def _tried(axis: Axis) -> Iterator[int]:
    """Yield sizes of an axis in order: all small ones, and some of the others."""
    dense = min(axis.max, axis.min + _DENSE)
    yield from range(axis.min, dense + 1)
    last = dense
    for step in range(1, _STEPS + 1):
        size = dense + (axis.max - dense) * step // _STEPS
        if size > last:
            yield size
            last = size


NO_DECISIONS = Decisions()

_T = TypeVar("_T")


def _distinct(items: Iterator[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(items))


def outcomes(decision: SizeDecision, cases: Sequence[tuple[str, Sizes]]) -> dict[str, bool]:
    """Return the outcome of a decision in each case that it makes sense in."""
    found = {}
    for name, sizes in cases:
        try:
            found[name] = decision.holds(sizes)
        except (ArithmeticError, KeyError):
            continue
    return found

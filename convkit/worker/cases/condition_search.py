"""Searches for legal inputs for which a condition inside a model turns out as it does in no case.

What is searched is a distance: how far the nearest element is from turning out that way. Inputs
move along its slope where that is known (torch), and at random where it is not.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from convkit.worker.cases.case import Feeds
from convkit.worker.cases.decision_sizes import Site
from convkit.worker.cases.values.sampled_values import generator

# Runs of the model that a search may take, with slopes and without.
_MOST_TRIES, _MOST_AT_RANDOM = 24, 160
# Steps along a slope, in parts of an input's range, and the share of elements that a step at random
# changes.
_STEPS = (1.0, 0.3, 0.1, 0.03, 0.01)
_SHARES = (0.5, 0.1, 0.02)
# Bisections between usual inputs and what was found.
_HALVINGS = 5
# How far beyond the comparison an element has to be, in parts of what is compared: nearer to it,
# rounding decides which way a right model goes.
CLEAR = 0.01


@dataclasses.dataclass(frozen=True)
class Condition:
    """How a condition turned out in a run: `most` is the distance of the element that is furthest
    where it holds, `least` of the one that is furthest where it does not, both positive where it
    holds, in parts of what is compared. `slopes` of the wanted one, by each input of fractions.
    """

    most: float
    least: float
    slopes: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def beyond(self, *, side: bool) -> float:
        """Return how far the nearest element is beyond the condition on a side; negative before."""
        return self.most if side else -self.least


class Comparisons(Protocol):
    """The comparisons inside a model, which is run on inputs by the contract's names."""

    def sides(self, feeds: Feeds) -> dict[Site, set[bool]]:
        """Return the comparisons of a run, each with the ways in which it turned out among its
        elements; none if the model refuses the inputs.
        """
        ...

    def matters(self, feeds: Feeds, site: Site) -> bool:
        """Return whether the model computes something else with a comparison turned the other way;
        False of limits, which turn nothing.
        """
        ...

    def condition(self, feeds: Feeds, site: Site, *, side: bool) -> Condition | None:
        """Return what becomes of a comparison in a run, with the slopes of its distance from a side
        as far as they are known; None if it is not made, or the model refuses the inputs.
        """
        ...


def distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return by how much one is larger than the other, from -1 to 1, in parts of both."""
    first, second = (np.asarray(each, np.float64) for each in (one, other))
    size = np.abs(first) + np.abs(second)
    return (first - second) / np.where(size > 0, size, 1.0)


# A run of the model: what became of one condition, with slopes for the wanted side; None if it was
# not met.
Probe = Callable[[Feeds], Condition | None]


def inputs_beyond(
    starts: Sequence[Feeds],
    ranges: Mapping[str, tuple[float, float]],
    probe: Probe,
    *,
    side: bool,
    most: int,
) -> Feeds | None:
    """Return inputs within `ranges` for which a condition clearly has an element on a side; None if
    the search, of about so many runs at most, finds none. Inputs without a range stay as they are.
    """
    tries = 0

    def asked(feeds: Feeds) -> tuple[float, Condition | None]:
        nonlocal tries
        tries += 1
        found = probe(feeds)
        beyond = -math.inf if found is None else found.beyond(side=side)
        return (beyond if math.isfinite(beyond) else -math.inf), found

    best, (reached, known) = starts[0], asked(starts[0])
    for feeds in starts[1 : max(1, most // 2)]:
        beyond, found = asked(feeds)
        if beyond > reached:
            best, reached, known = feeds, beyond, found
    most = min(most, _MOST_TRIES if known is not None and known.slopes else _MOST_AT_RANDOM)
    while known is not None and not reached >= CLEAR and tries < most:
        for feeds in _moved(best, ranges, known.slopes, tries):
            beyond, found = asked(feeds)
            if beyond > reached:
                best, reached, known = feeds, beyond, found
                break
        else:
            if known.slopes:  # neither along the slope nor at random
                break
    return _nearest(starts[0], best, probe, side=side) if reached >= CLEAR else None


def _nearest(usual: Feeds, found: Feeds, probe: Probe, *, side: bool) -> Feeds:
    """Return the inputs between usual ones and these that are nearest to the usual ones, and still
    clearly on the side: what is far out overflows a narrow type for reasons of its own.
    """
    low, high, best = 0.0, 1.0, found
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        nearer = {
            name: (usual[name] + share * (values - usual[name])).astype(values.dtype)
            if values.dtype.kind == "f"
            else values
            for name, values in found.items()
        }
        condition = probe(nearer)
        if condition is not None and condition.beyond(side=side) >= CLEAR:
            high, best = share, nearer
        else:
            low = share
    return best


def _moved(
    feeds: Feeds,
    ranges: Mapping[str, tuple[float, float]],
    slopes: Mapping[str, np.ndarray],
    seed: int,
) -> Iterator[Feeds]:
    """Yield inputs moved along slopes, with longer steps first, then at random."""
    for step in _STEPS if any(np.any(slope) for slope in slopes.values()) else ():
        moved = dict(feeds)
        for name, slope in slopes.items():
            if name in ranges:
                low, high = ranges[name]
                at = feeds[name].astype(np.float64) + step * (high - low) * np.sign(slope)
                moved[name] = np.clip(at, low, high).astype(feeds[name].dtype)
        yield moved
    random = generator(seed, "conditions")
    for share in _SHARES:
        moved = dict(feeds)
        for name, (low, high) in ranges.items():
            values = feeds[name]
            ends = random.choice([low, high], values.shape)
            drawn = random.uniform(low, high, values.shape)
            new = np.where(random.random() < 0.5, ends, drawn)
            chosen = random.random(values.shape) < max(share, 1 / max(values.size, 1))
            changed = np.where(chosen, new, values.astype(np.float64))
            whole = values.dtype.kind in "iu"
            moved[name] = (np.rint(changed) if whole else changed).astype(values.dtype)
        yield moved

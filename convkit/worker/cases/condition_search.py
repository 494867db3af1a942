"""Searches for legal inputs for which a condition inside a model turns out as it does in no case.

What is searched is a distance: how far the nearest element is from turning out that way. Inputs
move along its slope where that is known (torch), and at random where it is not.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cases.case import Feeds
from convkit.worker.cases.values.sampled_values import generator

# Runs of the model that a search may take.
_MOST_TRIES = 40
# Steps along a slope, in parts of an input's range, and the share of elements that a step at random
# changes.
_STEPS = (1.0, 0.3, 0.1, 0.03, 0.01)
_SHARES = (1.0, 0.5, 0.1)
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


# A run of the model: what became of one condition, with slopes for the wanted side; None if it was
# not met.
Probe = Callable[[Feeds], Condition | None]


def inputs_beyond(
    starts: Sequence[Feeds],
    ranges: Mapping[str, tuple[float, float]],
    probe: Probe,
    *,
    side: bool,
    most: int = _MOST_TRIES,
) -> Feeds | None:
    """Return inputs within `ranges` for which a condition clearly has an element on a side; None if
    the search, of at most so many runs and 40, finds none. Inputs without a range stay as they are.
    """
    tries, most = 0, min(most, _MOST_TRIES)

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
    while known is not None and not reached >= CLEAR and tries < most:
        for feeds in _moved(best, ranges, known.slopes, tries):
            beyond, found = asked(feeds)
            if beyond > reached:
                best, reached, known = feeds, beyond, found
                break
            if tries >= most:
                break
        else:
            break
    return best if reached >= CLEAR else None


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
            changed = np.where(random.random(values.shape) < share, new, values.astype(np.float64))
            whole = values.dtype.kind in "iu"
            moved[name] = (np.rint(changed) if whole else changed).astype(values.dtype)
        yield moved

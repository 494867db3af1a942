"""Finds the sizes of an axis that a file accepts: the range, and the step."""

import dataclasses
from collections.abc import Callable, Iterator

# Whether a file accepts a size of the axis, others at their usual sizes.
Works = Callable[[int], bool]

_STEPS = (
    *(2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 30, 32, 40, 48, 64, 80, 96, 100, 120, 128),
    *(160, 192, 256, 320, 480, 512, 640, 800, 1024, 1280, 1600, 2048, 4000, 8000, 16000),
)
# A picture of one pixel and a sound of one sample run, and mean nothing.
_LEAST = {"height": 32, "width": 32, "samples": 400, "bytes": 1024}
# How many times the usual size is tried as the largest.
_MOST = {"batch": 4, "height": 2, "width": 2, "side": 2, "samples": 3, "sequence": 4, "": 3}


@dataclasses.dataclass(frozen=True)
class Range:
    """Sizes are `step * n + rest`, n from `low` over `typical` to `high`."""

    low: int
    typical: int
    high: int
    step: int = 1
    rest: int = 0

    @property
    def is_fixed(self) -> bool:
        return self.low == self.high

    def size(self, count: int) -> int:
        """Return the size after a number of steps."""
        return self.step * count + self.rest

    def dimension(self, axis: str) -> int | str:
        """Return the size in terms of the axis, as a shape has it."""
        if self.is_fixed:
            return self.size(self.typical)
        text = axis if self.step == 1 else f"{self.step}*{axis}"
        return text if not self.rest else f"{text} + {self.rest}"


def find_range(base: int, role: str, works: Works) -> Range:
    """Return the sizes that work around `base`, which does."""
    found = _step(base, role, works)
    if found is None:
        return Range(base, base, base)
    step, rest = found

    def at(count: int) -> bool:
        return works(step * count + rest)

    typical = (base - rest) // step
    least = max(1, -(-min(_LEAST.get(role, 1), base // 2) // step)) if role in _LEAST else 1
    low = _lowest(min(least, typical), typical, at)
    high = _highest(typical, max(typical * _MOST.get(role, 3), typical + 2), at)
    return Range(low, min(max(typical, low), high), high, step, rest)


def _step(base: int, role: str, works: Works) -> tuple[int, int] | None:
    """Return the step between accepted sizes, and the remainder; None for a single size."""
    # Divisors of the working size come first: a graph that rounds up to blocks accepts slightly
    # different sizes, too.
    steps = [step for step in _STEPS if step <= base]
    for step in (1, *sorted(steps, key=lambda step: base % step > 0)):
        # Adjacent sizes may be rounded up to the same one; more distant ones are conclusive.
        # Nothing rounds a batch up to blocks, and large ones take long.
        times = (1, 2, 3, 5, 9) if step < 16 and role != "batch" else (1, 2, 3)
        for sign in (1, -1):  # upward; downward if base is the largest
            if base + sign * times[-1] * step < 1:
                continue
            if all(works(base + sign * count * step) for count in times):
                return step, base % step
    return None


def _lowest(least: int, typical: int, at: Callable[[int], bool]) -> int:
    """Return a count from which on, as far as was tried, all work."""
    fails, low = least - 1, least
    if not at(least):
        fails, low = least, typical
        while low - fails > 1:
            middle = (low + fails) // 2
            fails, low = (fails, middle) if at(middle) else (middle, low)
    for between in sorted({(low * 3 + typical) // 4, (low + typical) // 2, low + 1, low + 2}):
        if low < between < typical and not at(between):
            return _lowest(between + 1, typical, at)
    return low


def _highest(typical: int, most: int, at: Callable[[int], bool]) -> int:
    if at(most):
        return most
    works, fails = typical, most
    while fails - works > 1:
        middle = (works + fails) // 2
        works, fails = (middle, fails) if at(middle) else (works, middle)
    return works


def narrowed(found: Range) -> Iterator[Range]:
    """Yield parts of a range: without its smallest sizes, of which the first elements of something
    may be too few, without its larger ones, and the typical size alone.
    """
    for low in (2, 3, 4, 8):
        if found.low < low < found.typical:
            yield dataclasses.replace(found, low=low)
    yield dataclasses.replace(found, low=found.typical)
    yield dataclasses.replace(found, high=found.typical)
    yield dataclasses.replace(found, low=found.typical, high=found.typical)

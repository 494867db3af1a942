"""Logarithmic scales: positions and ticks. Pure; standard library only."""

import dataclasses
import math
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class LogScale:
    """Maps positive numbers to positions: 10**low to `bottom`, 10**high to `top`."""

    low: int
    high: int
    bottom: float
    top: float

    def position(self, value: float) -> float:
        """Return a number's position. Raises ValueError for what a logarithm does not have: zero,
        negative numbers, NaN, infinity.
        """
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{value} has no place on a logarithmic scale")
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.bottom + share * (self.top - self.bottom)

    def ticks(self, most: int = 5) -> tuple[int, ...]:
        """Return the exponents to label: at most `most` whole decades, evenly spaced, 0 among them
        if it is in the range.
        """
        step = max(1, math.ceil((self.high - self.low + 1) / most))
        anchor = 0 if self.low <= 0 <= self.high else self.low
        first = anchor - (anchor - self.low) // step * step
        return tuple(range(first, self.high + 1, step))


def log_scale(values: Iterable[float], bottom: float, top: float) -> LogScale:
    """Return a scale of whole decades around the positive finite values; one decade at least."""
    logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    low = math.floor(min(logs, default=0.0))
    high = math.ceil(max(logs, default=0.0))
    return LogScale(low, max(high, low + 1), bottom, top)

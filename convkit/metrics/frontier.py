"""The upper convex hull of error over magnitude: what `max(|error| - rtol * |reference|)` needs,
for every rtol.
"""

import numpy as np

# A magnitude's bin: the float64's exponent and the four leading bits of its fraction. Bits of
# non-negative floats order as the floats do, so that a bin's number grows with the magnitude.
_BIN_SHIFT = np.uint64(48)
_BINS = 1 << 15  # of the 16 bits that stay, the sign's is always 0

# So many elements seed the hull; so many survivors of the bins are worth a closer look before they
# are sorted.
_SEED_ELEMENTS = 2048
_FEW = 2048


class Frontier:
    """Collects the points (magnitude, error) that can be the largest `error - rtol * magnitude` for
    some rtol >= 0.

    Those are the vertices of the points' upper convex hull from the smallest magnitude to the
    largest error. Points come in chunks; a point on or below the hull so far never matters. Exact
    up to float64's rounding.
    """

    def __init__(self) -> None:
        self._magnitudes = np.empty(0)
        self._errors = np.empty(0)
        # For each bin: the hull's height at its lower edge, below which a point in the bin lies
        # below the hull.
        self._floor = np.full(_BINS, -1.0)

    def add(self, magnitudes: np.ndarray, errors: np.ndarray) -> None:
        """Take in points, both float64, non-negative and without NaN, of one length."""
        if magnitudes.size == 0:
            return
        if self._magnitudes.size == 0:
            step = max(1, magnitudes.size // _SEED_ELEMENTS)
            self._merge(magnitudes[::step], errors[::step])
        bins = (magnitudes.view(np.uint64) >> _BIN_SHIFT).view(
            np.int64
        )  # take is slow on unsigned numbers
        above = np.flatnonzero(errors > self._floor.take(bins))
        if above.size == 0:
            return
        magnitudes, errors = magnitudes[above], errors[above]
        if above.size > _FEW:
            # Many points in the hull's own bins: seed again with these, then look at the hull
            # itself.
            step = max(1, above.size // _SEED_ELEMENTS)
            self._merge(magnitudes[::step], errors[::step])
            above = np.flatnonzero(
                errors > np.interp(magnitudes, self._magnitudes, self._errors, left=-1.0)
            )
            magnitudes, errors = magnitudes[above], errors[above]
        self._merge(magnitudes, errors)

    def points(self) -> tuple[tuple[float, float], ...]:
        """Return the vertices, (magnitude, error), both growing."""
        return tuple(zip(self._magnitudes.tolist(), self._errors.tolist(), strict=True))

    def _merge(self, magnitudes: np.ndarray, errors: np.ndarray) -> None:
        magnitudes = np.concatenate([self._magnitudes, magnitudes])
        errors = np.concatenate([self._errors, errors])
        order = np.lexsort((-errors, magnitudes))
        magnitudes, errors = magnitudes[order], errors[order]
        # Only points higher than everything left of them can be vertices.
        highest = np.maximum.accumulate(errors)
        rising = np.concatenate([[True], errors[1:] > highest[:-1]])
        self._magnitudes, self._errors = _hull(magnitudes[rising], errors[rising])
        self._floor = self._floor_of_bins()

    def _floor_of_bins(self) -> np.ndarray:
        edges = (np.arange(_BINS, dtype=np.uint64) << _BIN_SHIFT).view(np.float64)
        finite = np.isfinite(edges)
        floor = np.full(_BINS, self._errors[-1])
        floor[finite] = np.interp(edges[finite], self._magnitudes, self._errors, left=-1.0)
        return floor


def _hull(magnitudes: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices of a chain of points whose magnitudes and errors both grow (Andrew's
    monotone chain).
    """
    chain: list[tuple[float, float]] = []
    for x, y in zip(magnitudes.tolist(), errors.tolist(), strict=True):
        while len(chain) >= 2:
            (x0, y0), (x1, y1) = chain[-2], chain[-1]
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            chain.pop()
        chain.append((x, y))
    vertices = np.array(chain)
    return vertices[:, 0].copy(), vertices[:, 1].copy()

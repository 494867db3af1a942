"""The upper convex hull of error over magnitude: enough to compute `max(|error| - rtol *
|reference|)` for every rtol.
"""

import numpy as np

# A magnitude's bin: the float64's exponent and the four leading bits of its fraction. The bits of
# non-negative floats sort like the floats, so bin numbers increase with magnitude.
_BIN_SHIFT = np.uint64(48)
_BINS = 1 << 15  # 16 bits remain, and the sign bit is always 0

# Number of elements that seed the hull; also the number of survivors of the bins that is worth
# further filtering before sorting.
_SEED_ELEMENTS = 2048
_FEW = 2048


class Frontier:
    """Collects the points (magnitude, error) that can maximize `error - rtol * magnitude` for some
    rtol >= 0.

    These are the vertices of the points' upper convex hull, from the smallest magnitude to the
    largest error. Points arrive in chunks; a point on or below the current hull can never become a
    vertex. Exact up to float64 rounding.
    """

    def __init__(self) -> None:
        self._magnitudes = np.empty(0)
        self._errors = np.empty(0)
        # Per bin: the hull's height at the bin's lower edge. Points in the bin below this height
        # lie below the hull.
        self._floor = np.full(_BINS, -1.0)

    def add(self, magnitudes: np.ndarray, errors: np.ndarray) -> None:
        """Add points: two float64 arrays of equal length, non-negative and without NaN."""
        if magnitudes.size == 0:
            return
        if self._magnitudes.size == 0:
            step = max(1, magnitudes.size // _SEED_ELEMENTS)
            self._merge(magnitudes[::step], errors[::step])
        bins = (magnitudes.view(np.uint64) >> _BIN_SHIFT).view(
            np.int64
        )  # take is slow with unsigned indices
        above = np.flatnonzero(errors > self._floor.take(bins))
        if above.size == 0:
            return
        magnitudes, errors = magnitudes[above], errors[above]
        if above.size > _FEW:
            # Many points share bins with the hull: reseed with them, then compare with the hull
            # itself.
            step = max(1, above.size // _SEED_ELEMENTS)
            self._merge(magnitudes[::step], errors[::step])
            above = np.flatnonzero(
                errors > np.interp(magnitudes, self._magnitudes, self._errors, left=-1.0)
            )
            magnitudes, errors = magnitudes[above], errors[above]
        self._merge(magnitudes, errors)

    def points(self) -> tuple[tuple[float, float], ...]:
        """Return the vertices (magnitude, error), in increasing order of both."""
        return tuple(zip(self._magnitudes.tolist(), self._errors.tolist(), strict=True))

    def _merge(self, magnitudes: np.ndarray, errors: np.ndarray) -> None:
        magnitudes = np.concatenate([self._magnitudes, magnitudes])
        errors = np.concatenate([self._errors, errors])
        order = np.lexsort((-errors, magnitudes))
        magnitudes, errors = magnitudes[order], errors[order]
        # Only points higher than everything to their left can be vertices.
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
    """Return the vertices of a chain of points sorted by both magnitude and error (Andrew's
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

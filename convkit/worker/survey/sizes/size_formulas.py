"""Fits an arithmetic expression over axes to an output's observed sizes."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Dimension, DimensionError, dimension_size

Sizes = Mapping[str, int]
# Sums of products of at most this many axes are tried (a detector's boxes: 21 * rows * columns).
_MOST_FACTORS = 3
_PLATEAU = 2
# The largest stride or window, in elements of the axis.
_LARGEST_STEP = 2049


def fit_dimension(
    seen: Sequence[tuple[Sizes, int]], axes: Sequence[str], hints: Sequence[Dimension] = ()
) -> Dimension | None:
    """Return a dimension that matches every observed size, simple ones first; None if there is
    none.

    `hints` are dimensions of the inputs, tried first.
    """
    numbers = [size for _, size in seen]
    if len(set(numbers)) == 1:
        return numbers[0]
    varying = [axis for axis in axes if len({sizes[axis] for sizes, _ in seen}) > 1]
    candidates = itertools.chain(
        varying, (hint for hint in hints if isinstance(hint, str)), _worked_out(seen, varying)
    )
    return next((text for text in candidates if _fits(text, seen)), None)


def _fits(text: str, seen: Sequence[tuple[Sizes, int]]) -> bool:
    try:
        return all(dimension_size(text, sizes) == size for sizes, size in seen)
    except DimensionError:
        return False


def _worked_out(seen: Sequence[tuple[Sizes, int]], axes: Sequence[str]) -> Iterator[str]:
    for axis in axes:
        yield from _polynomial(seen, [axis])
        yield from _steps(seen, axis)
    yield from _polynomial(seen, axes)
    for axis, other in itertools.permutations(axes, 2):
        yield from _times(seen, axis, other)


def _polynomial(seen: Sequence[tuple[Sizes, int]], axes: Sequence[str]) -> Iterator[str]:
    """Yield the sum of products of distinct axes, with whole factors, that solves for the sizes."""
    terms = [
        term
        for count in range(min(len(axes), _MOST_FACTORS) + 1)
        for term in itertools.combinations(axes, count)
    ]
    # A square of an axis occurs too (attention's scores over one sequence).
    terms += [(axis, axis) for axis in axes]
    for chosen in (terms[: len(axes) + 1], terms[: -len(axes) or None], terms):
        matrix = np.array(
            [
                [np.prod([sizes[a] for a in term], dtype=float) for term in chosen]
                for sizes, _ in seen
            ]
        )
        wanted = np.array([size for _, size in seen], dtype=float)
        solution, *_ = np.linalg.lstsq(matrix, wanted, rcond=None)
        factors = [round(float(factor)) for factor in solution]
        if any(factors) and np.abs(matrix @ np.array(factors, dtype=float) - wanted).max() < 0.5:
            yield _sum(chosen, factors)


def _sum(terms: Sequence[tuple[str, ...]], factors: Sequence[int]) -> str:
    text = ""
    pairs = [(term, factor) for term, factor in zip(terms, factors, strict=True) if factor]
    for term, factor in sorted(pairs, key=lambda pair: (pair[1] < 0, not pair[0])):
        size = abs(factor)
        product = "*".join(([str(size)] if size != 1 or not term else []) + list(term))
        sign = " - " if factor < 0 else " + "
        text += product if not text and factor > 0 else f"{sign if text else '0 - '}{product}"
    return text


def _steps(seen: Sequence[tuple[Sizes, int]], axis: str) -> Iterator[str]:
    """Yield `(times * axis + offset) // step`, as produced by strides, windows and resampling, also
    with an integer factor.
    """
    pairs = sorted({(sizes[axis], size) for sizes, size in seen})
    (low, first), (high, last) = pairs[0], pairs[-1]
    if len({at for at, _ in pairs}) != len(pairs) or first == last:
        return  # one size of the axis produced two: another axis matters too
    for factor in (1, 2, 3, 4, 8):
        # The slope is known to within one step at either end.
        rise, run = (last - first) / factor, high - low
        # A stride that is long relative to the observed sizes shows too little.
        for step in range(1, min(_LARGEST_STEP, max(64, 4 * run))):
            least, most = (rise - 1) * step / run, (rise + 1) * step / run
            for times in range(max(1, math.ceil(least)), math.floor(most) + 1):
                if math.gcd(times, step) == 1:
                    yield from _with_step(pairs, axis, (times, step), factor)


def _with_step(
    pairs: Sequence[tuple[int, int]], axis: str, slope: tuple[int, int], factor: int
) -> Iterator[str]:
    times, step = slope
    # Two sizes fit many lines: more likely, one of them is all that larger axes make.
    is_plateau = len({size for _, size in pairs}) == _PLATEAU
    for rest in range(factor):
        if any((size - rest) % factor for _, size in pairs):
            continue
        # Each pair bounds the offset: size == factor * ((times * at + offset) // step) + rest.
        bounds = [(size - rest) // factor * step - times * at for at, size in pairs]
        least, most = max(bounds), min(bounds) + step - 1
        if least > most:
            continue
        offset = _simplest(least, most, step)
        if is_plateau and (factor > 1 or offset not in _usual_offsets(step)):
            continue
        text = axis if times == 1 else f"{times}*{axis}"
        if offset:
            text = f"({text} {'+' if offset > 0 else '-'} {abs(offset)})"
        text = f"{text} // {step}" if step > 1 else text
        text = text if factor == 1 else f"{factor} * ({text})"
        yield text if rest == 0 else f"{text} + {rest}"


def _usual_offsets(step: int) -> tuple[int, ...]:
    return 0, step - 1, step, -step, step // 2


def _simplest(least: int, most: int, step: int) -> int:
    """Return the offset that people would write: none, a whole step, or the usual rounding up."""
    for offset in _usual_offsets(step):
        if least <= offset <= most:
            return offset
    return least if abs(least) <= abs(most) else most


def _times(seen: Sequence[tuple[Sizes, int]], axis: str, other: str) -> Iterator[str]:
    """Yield an axis times an expression of another: rows times frames."""
    if any(size % max(sizes[axis], 1) or not sizes[axis] for sizes, size in seen):
        return
    rest = [(sizes, size // sizes[axis]) for sizes, size in seen]
    for text in _steps(rest, other):
        yield f"{axis} * ({text})"

"""Checks that an output's figures can come from one pair of tensors. Pure.

An error's mean, root mean square and maximum constrain each other, and so do the largest error, the
worst element's two values and the frontier. Somebody who lowers one figure leaves the others.
"""

import itertools
import math
from collections.abc import Iterator

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.protocol.messages import TensorMetrics

# Sums are taken in float64, of many elements; squares of errors below 1e-150 vanish.
_ROUNDING = 1e-6
_VANISHED = 1e-150


def impossible_figures(metrics: TensorMetrics) -> Iterator[str]:
    """Return why no two tensors have these figures; nothing if some do."""
    if metrics.mismatch is not None or metrics.elements == 0:
        return
    yield from _counts(metrics)
    errors = (metrics.mean_abs, metrics.rms, metrics.max_abs)
    if len({math.isnan(error) for error in errors}) > 1:
        yield "some of mean_abs, rms and max_abs are NaN, others are not"
    elif not math.isnan(metrics.max_abs):
        yield from _errors(metrics)
        yield from _largest(metrics)
        yield from _direction(metrics)
        yield from _relations(metrics)


def _counts(metrics: TensorMetrics) -> Iterator[str]:
    everything = metrics.elements + metrics.padding_elements
    for name in ("nan_reference", "nan_candidate", "inf_reference", "inf_candidate"):
        count = getattr(metrics, name)
        if not 0 <= count <= everything:
            yield f"{name} is {count}, of {everything} elements"
    if metrics.inf_mismatched == 0 and metrics.inf_reference != metrics.inf_candidate:
        yield (
            f"inf_reference is {metrics.inf_reference}, inf_candidate {metrics.inf_candidate}, but"
            " no infinity is mismatched"
        )
    for name in ("agreement", "cosine"):
        value, least = getattr(metrics, name), 0.0 if name == "agreement" else -1.0
        if not (math.isnan(value) or least - _ROUNDING <= value <= 1 + _ROUNDING):
            yield f"{name} is {value:g}"


def _errors(metrics: TensorMetrics) -> Iterator[str]:
    names = ("mean_abs", "rms", "max_abs")
    for smaller, larger in itertools.pairwise(names):
        low, high = getattr(metrics, smaller), getattr(metrics, larger)
        if not 0 <= low <= high * (1 + _ROUNDING) + _VANISHED:
            yield f"{smaller} {low:g} exceeds {larger} {high:g}"
    if not math.isnan(metrics.agreement) and (metrics.agreement == 1.0) != (metrics.max_abs == 0.0):
        yield f"max_abs is {metrics.max_abs:g}, but agreement is {metrics.agreement:g}"


def _largest(metrics: TensorMetrics) -> Iterator[str]:
    """Compare the largest error with the worst element and with the frontier."""
    largest = metrics.max_abs
    special = metrics.nan_reference or metrics.nan_candidate or metrics.inf_mismatched
    worst = (metrics.worst_reference, metrics.worst_candidate)
    if not special and all(map(math.isfinite, worst)):
        difference = abs(worst[1] - worst[0])
        # Errors between denormals count as 0, so the worst element of no error may have one.
        allowed = _ROUNDING * largest + 1e-12 * max(map(abs, worst)) + SMALLEST_NORMAL
        if not abs(difference - largest) <= allowed:
            yield f"max_abs is {largest:g}, but the worst element differs by {difference:g}"
    on_frontier = max((error for _, error in metrics.frontier), default=largest)
    if not abs(on_frontier - largest) <= _ROUNDING * largest:
        yield f"max_abs is {largest:g}, but the frontier's largest error is {on_frontier:g}"


def _direction(metrics: TensorMetrics) -> Iterator[str]:
    """Compare the cosine with the errors: a vector that is off by a share q of its length is off by
    an angle of at most asin(q).
    """
    length = metrics.reference_rms
    if not (length > 0 and metrics.rms < length and math.isfinite(metrics.cosine)):
        return
    least = math.sqrt(1 - (metrics.rms / length) ** 2)
    if not metrics.cosine >= least - _ROUNDING:
        yield (
            f"cosine is {metrics.cosine:g}, but with an rms of {metrics.rms:g} at a reference of"
            f" {length:g} it is at least {least:g}"
        )


def _relations(metrics: TensorMetrics) -> Iterator[str]:
    """Compare the figures that follow from others. Older records lack some: NaN."""
    special = metrics.nan_reference or metrics.nan_candidate or metrics.inf_mismatched
    most = math.sqrt(metrics.elements)
    if not metrics.max_abs <= metrics.rms * most * (1 + _ROUNDING) + _VANISHED:
        yield f"max_abs is {metrics.max_abs:g}, too large for an rms of {metrics.rms:g}"
    if not metrics.max_abs <= metrics.mean_abs * metrics.elements * (1 + _ROUNDING) + _VANISHED:
        yield f"max_abs is {metrics.max_abs:g}, too large for a mean_abs of {metrics.mean_abs:g}"
    if not (special or metrics.inf_reference or math.isnan(metrics.agreement)):
        equal = metrics.agreement * metrics.elements
        if not abs(equal - round(equal)) <= _ROUNDING * max(equal, 1.0):
            yield f"agreement is {metrics.agreement:g} of {metrics.elements} elements"
    length, largest = metrics.reference_rms, metrics.reference_max
    if math.isnan(length) or math.isnan(largest) or math.isinf(length):
        return
    if not (
        0 <= length <= largest * (1 + _ROUNDING) and largest <= length * most * (1 + _ROUNDING)
    ):
        yield f"reference_rms is {length:g}, reference_max {largest:g}"
    if length > 0 and not abs(metrics.nrmse * length - metrics.rms) <= _ROUNDING * metrics.rms:
        yield f"nrmse is {metrics.nrmse:g}, but rms is {metrics.rms:g} of {length:g}"
    if largest > 0 and not metrics.max_rel >= metrics.max_abs / largest * (1 - _ROUNDING):
        yield f"max_rel is {metrics.max_rel:g}, too small for max_abs and reference_max"
    if metrics.differing_max > largest * (1 + _ROUNDING):
        yield f"differing_max is {metrics.differing_max:g}, reference_max {largest:g}"
    worst = 0.0 if special else abs(metrics.worst_reference)
    if math.isfinite(worst) and not worst <= largest * (1 + _ROUNDING):
        yield f"the worst element is {metrics.worst_reference:g}, reference_max {largest:g}"
    if any(not 0 <= magnitude <= largest * (1 + _ROUNDING) for magnitude, _ in metrics.frontier):
        yield f"the frontier exceeds reference_max {largest:g}"
    if any(not each.scale <= largest * (1 + _ROUNDING) for each in metrics.by_scale):
        yield f"an error's scale exceeds reference_max {largest:g}"
    if metrics.by_scale and metrics.by_scale[-1].error != metrics.max_abs:
        yield f"max_abs is {metrics.max_abs:g}, by scale {metrics.by_scale[-1].error:g}"


def misplaced_figures(metrics: TensorMetrics, shape: tuple[int, ...]) -> Iterator[str]:
    """Return what contradicts the output's shape."""
    if metrics.mismatch is not None or metrics.rows is not None:
        return
    counted = metrics.elements + metrics.padding_elements
    if counted != math.prod(shape):
        yield f"{counted} elements were compared, its shape {list(shape)} has {math.prod(shape)}"
    index = metrics.worst_index
    fits = len(index) == len(shape) and all(
        0 <= place < size for place, size in zip(index, shape, strict=True)
    )
    if metrics.elements and not fits:
        yield f"the worst element is at {list(index)}, outside its shape {list(shape)}"

"""Checks that an output's figures can come from one pair of tensors. Pure.

An error's mean, root mean square and maximum constrain each other, and so do the largest error, the
worst element's two values and the frontier. Somebody who lowers one figure leaves the others.
"""

import itertools
import math
from collections.abc import Iterator

from convkit.worker.protocol import TensorMetrics

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


def _counts(metrics: TensorMetrics) -> Iterator[str]:
    everything = metrics.elements + metrics.padding_elements
    for name in ("nan_reference", "nan_candidate", "inf_reference", "inf_candidate"):
        count = getattr(metrics, name)
        if not 0 <= count <= everything:
            yield f"{name} is {count}, of {everything} elements"
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
        allowed = _ROUNDING * largest + 1e-12 * max(map(abs, worst))
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

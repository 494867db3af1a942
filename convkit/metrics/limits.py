"""Limits on one output's metrics. Every comparison is written so that NaN fails. Standard library
only.
"""

import dataclasses
import math
from collections.abc import Mapping

from convkit.worker.protocol import TensorMetrics

# Limits by name, as in a recipe's tolerance: max_abs, max_rel, mean_abs, rms, cosine, atol, rtol.
Limits = Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Breach:
    """A limit that was broken: both figures, and the sentence that says so."""

    limit: str
    allowed: float
    found: float

    def __str__(self) -> str:
        if self.limit == "cosine":
            return f"cosine {self.found:.6g} < {self.allowed:.6g}"
        return f"{self.limit} {self.found:.3g} > {self.allowed:.3g}"


def breaches(metrics: TensorMetrics, limits: Limits) -> list[Breach]:
    """Return the limits that an output broke, in the order of the recipe's keys."""
    found = [
        Breach(name, limits[name], value)
        for name, value in _errors(metrics)
        if name in limits and not value <= limits[name]
    ]
    if "cosine" in limits and not metrics.cosine >= limits["cosine"]:
        found.append(Breach("cosine", limits["cosine"], metrics.cosine))
    if "atol" in limits or "rtol" in limits:
        allowed = limits.get("atol", 0.0)
        excess = allclose_excess(metrics, limits.get("rtol", 0.0))
        if not excess <= allowed:
            found.append(Breach("atol", allowed, excess))
    return found


def allclose_excess(metrics: TensorMetrics, rtol: float) -> float:
    """Return max(|candidate - reference| - rtol * |reference|) over all elements, exactly.

    numpy's allclose holds where this is at most atol. The maximum over all elements is reached on
    the upper convex hull of the points (|reference|, |error|), which is what
    `TensorMetrics.frontier` keeps. NaN where nothing is known.
    """
    if not metrics.frontier:
        return math.nan
    return max(error - rtol * magnitude for magnitude, error in metrics.frontier)


def is_within(metrics: TensorMetrics, limits: Limits) -> bool:
    """Say whether an output meets its limits: compared, without NaN or unmatched infinities, and no
    limit broken.
    """
    sound = metrics.mismatch is None and metrics.elements > 0
    sound = sound and not (metrics.nan_candidate or metrics.nan_reference or metrics.inf_mismatched)
    return sound and not breaches(metrics, limits)


def is_same(metrics: TensorMetrics) -> bool:
    """Say whether two tensors hold the same values, as far as metrics tell: NaN and infinities
    included.
    """
    alike = metrics.nan_reference == metrics.nan_candidate and metrics.inf_mismatched == 0
    return alike and metrics.mismatch is None and (metrics.max_abs == 0.0 or not metrics.frontier)


def overshoot(metrics: TensorMetrics, limits: Limits) -> float:
    """Return by what factor the error must shrink for the limits to hold: at most 1 where they do.

    Infinite where that cannot be said: NaN, unmatched infinities, nothing compared. The cosine's
    distance from 1 goes with the square of the error (1 - cos = |error|^2 / 2 |reference|^2 for a
    small error across the reference).
    """
    if metrics.mismatch is not None or not metrics.elements:
        return math.inf
    if metrics.nan_candidate or metrics.nan_reference or metrics.inf_mismatched:
        return math.inf
    share = _largest_share(metrics, limits)
    return min(share, 1.0) if is_within(metrics, limits) else share


def _largest_share(metrics: TensorMetrics, limits: Limits) -> float:
    shares = [_share(value, limits[name]) for name, value in _errors(metrics) if name in limits]
    if "cosine" in limits:
        shares.append(math.sqrt(_share(max(1.0 - metrics.cosine, 0.0), 1.0 - limits["cosine"])))
    if "atol" in limits or "rtol" in limits:
        atol, rtol = limits.get("atol", 0.0), limits.get("rtol", 0.0)
        shares += [
            _share(error, atol + rtol * magnitude) for magnitude, error in metrics.frontier
        ] or [math.nan]
    return math.inf if any(math.isnan(share) for share in shares) else max(shares, default=0.0)


def _share(found: float, allowed: float) -> float:
    if math.isnan(found):
        return math.nan
    return found / allowed if allowed > 0 else (0.0 if found <= 0 else math.inf)


def _errors(metrics: TensorMetrics) -> tuple[tuple[str, float], ...]:
    return (
        ("max_abs", metrics.max_abs),
        ("max_rel", metrics.max_rel),
        ("mean_abs", metrics.mean_abs),
        ("rms", metrics.rms),
    )

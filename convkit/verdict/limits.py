"""Tolerances as limits on one output's metrics. Every comparison is written so that NaN fails."""

import dataclasses
import math

from convkit.recipe.models import OnnxRuntimeTarget, Recipe, Tolerance
from convkit.worker.protocol import TensorMetrics


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


def tolerance_for(recipe: Recipe, target: OnnxRuntimeTarget, output: str, override: Tolerance | None) -> Tolerance:
    """Return the tolerance an output is judged by: the nearest one that is given, whole.

    Nearest first: the command line's, the target's for this output, the target's, the recipe's for this output, the
    recipe's. A nearer tolerance stands in place of the others: limits are not mixed.
    """
    nearest_first = (override, target.outputs.get(output), target.tolerance, recipe.verify.outputs.get(output))
    return next((tolerance for tolerance in nearest_first if tolerance is not None), recipe.verify.tolerance)


def limits_of(tolerance: Tolerance) -> dict[str, float]:
    """Return the limits that are set, by name."""
    return {name: float(value) for name, value in tolerance.model_dump().items() if value is not None}


def breaches(metrics: TensorMetrics, tolerance: Tolerance) -> list[Breach]:
    """Return the limits that an output broke, in the order of the recipe's keys."""
    found: list[Breach] = []
    for name in ("max_abs", "max_rel", "mean_abs", "rms"):
        limit = getattr(tolerance, name)
        value = getattr(metrics, name)
        if limit is not None and not value <= limit:
            found.append(Breach(name, limit, value))
    if tolerance.cosine is not None and not metrics.cosine >= tolerance.cosine:
        found.append(Breach("cosine", tolerance.cosine, metrics.cosine))
    if tolerance.atol is not None or tolerance.rtol is not None:
        atol = tolerance.atol or 0.0
        excess = allclose_excess(metrics, tolerance.rtol or 0.0)
        if not excess <= atol:
            found.append(Breach("atol", atol, excess))
    return found


def allclose_excess(metrics: TensorMetrics, rtol: float) -> float:
    """Return max(|candidate - reference| - rtol * |reference|) over all elements, exactly.

    numpy's allclose holds where this is at most atol. The maximum over all elements is reached on the upper convex
    hull of the points (|reference|, |error|), which is what `TensorMetrics.frontier` keeps. NaN where nothing is known.
    """
    if not metrics.frontier:
        return math.nan
    return max(error - rtol * magnitude for magnitude, error in metrics.frontier)

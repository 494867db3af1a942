"""Finds the tolerance that applies to an output, and its limits."""

import dataclasses
from typing import Literal

from convkit.host.recipe.keys.low_precision_types import (
    RESOLUTION,
    compared_type,
    computed_type,
    derived_tolerance,
    usual_nrmse,
)
from convkit.host.recipe.keys.recipe import PrecisionLimits, Recipe, Target, Tolerance
from convkit.protocol.contract import is_whole
from convkit.protocol.metrics.metric_registry import absolute_limit

# By how much less one rounding may show in the outputs than where it happens.
_AVERAGED_OUT = 100

# The place of a tolerance that a low-precision target did not declare.
FROM_PRECISION = "the precision"
# The share of labels that may differ in a low precision where the model's own scores say so, which
# have a limit of their own. If most of them do, the scores say nothing.
_BY_SCORES = 0.5


@dataclasses.dataclass(frozen=True)
class FoundTolerance:
    """A tolerance and its key. `own`: it was given for this output alone."""

    tolerance: Tolerance
    place: str
    own: bool


def tolerance_of(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> FoundTolerance:
    """Return the tolerance that applies to an output: the nearest one given, as a whole.

    Nearest first: the command line's, the target's for this output, the target's, the recipe's for
    this output, the recipe's for the target's precision, the recipe's. If none is written, the
    tolerance follows from the type of a target or an original in low precision (for fractions
    only), and all others have the default. A nearer tolerance replaces the others; limits are never
    combined.
    """
    name = next((name for name, each in recipe.targets.items() if each is target), "")
    whole = any(tensor.name == output and is_whole(tensor.dtype) for tensor in recipe.outputs)
    verify = recipe.verify
    kind = computed_type(target)
    measured = verify.by_precision.get(kind) or PrecisionLimits()
    here = f"verify.by_precision.{kind}"
    written = verify.tolerance if "tolerance" in verify.model_fields_set else None
    nearest_first = (
        (override, "the command line", False),
        (target.outputs.get(output), f"targets.{name}.outputs.{output}", True),
        (target.tolerance, f"targets.{name}.tolerance", False),
        (verify.outputs.get(output), f"verify.outputs.{output}", True),
        (measured.outputs.get(output), f"{here}.outputs.{output}", True),
        (measured.tolerance, f"{here}.tolerance", False),
        (written, "verify.tolerance", False),
        (None if whole else derived_tolerance(recipe, target), FROM_PRECISION, False),
        (verify.tolerance, "verify.tolerance", False),
    )
    return next(
        FoundTolerance(tolerance, place, own)
        for tolerance, place, own in nearest_first
        if tolerance is not None
    )


def follows_from_type(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> bool:
    """Say whether nobody wrote limits for an output of a target in low precision: labels, too,
    follow from its type then.
    """
    found = tolerance_of(recipe, target, output, override)
    if found.place == FROM_PRECISION:
        return True
    by_default = "tolerance" not in recipe.verify.model_fields_set
    return computed_type(target) != "float32" and found.place == "verify.tolerance" and by_default


# What a target's verdict rests on.
Decision = Literal["tolerance", "task metric", "tolerance and task metric"]


def decided_by(recipe: Recipe, target: Target) -> Decision:
    """Return what decides about a target. With `evaluate`, a tolerance does only if it was
    written.
    """
    if recipe.evaluate is None:
        return "tolerance"
    verify = recipe.verify
    written = (
        target.tolerance
        or target.outputs
        or verify.outputs
        or computed_type(target) in verify.by_precision
    )
    if written or "tolerance" in verify.model_fields_set:
        return "tolerance and task metric"
    return "task metric"


def tolerance_for(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> Tolerance:
    """Return the tolerance that applies to an output; see `tolerance_of`."""
    return tolerance_of(recipe, target, output, override).tolerance


def limits_of(tolerance: Tolerance) -> dict[str, float]:
    """Return the limits that are set, by name."""
    return {
        name: float(value) for name, value in tolerance.model_dump().items() if value is not None
    }


def limits_for(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> dict[str, float]:
    """Return the limits that an output is judged by.

    There are none if the task metric alone decides.
    """
    if override is None and decided_by(recipe, target) == "task metric":
        return {}
    return limits_by_type(recipe, target, output, override)


def limits_by_type(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> dict[str, float]:
    """Return the limits that an output has, whether or not they decide.

    Of a tolerance that is not its own, whole numbers take `agreement` only (all elements equal if
    it is not given), and fractions everything else, with `ulps` for float32 only. In a low
    precision whose limits nobody wrote, labels may follow from the model's own scores, if these
    are an output, which has a limit of its own.
    """
    found = tolerance_of(recipe, target, output, override)
    limits = limits_of(found.tolerance)
    if found.own:
        return limits
    dtype = next((tensor.dtype for tensor in recipe.outputs if tensor.name == output), "float32")
    if is_whole(dtype):
        agreement = {"agreement": limits.get("agreement", 1.0)}
        if not follows_from_type(recipe, target, output, override):
            return agreement
        return {**agreement, "by_scores": limits.get("by_scores", _BY_SCORES)}
    foreign = {"agreement", "by_scores"} | (set() if dtype == "float32" else {"ulps"})
    return {name: limit for name, limit in limits.items() if name not in foreign} or limits


@dataclasses.dataclass(frozen=True)
class TooFine:
    """A limit on an output's absolute error that is below the resolution of the type that the
    target or its original computes in. `place`: the key that sets it.
    """

    output: str
    limit: float
    type: str
    place: str

    @property
    def resolution(self) -> float:
        """The error of rounding one value of about 1."""
        return RESOLUTION[self.type]

    @property
    def better(self) -> str:
        """A tolerance to start from: the type's usual one."""
        return f"tolerance: {{nrmse: {usual_nrmse(self.type):g}}}"

    @property
    def by_far(self) -> bool:
        """Whether no single module can be in this type: one rounding, even if most of it averages
        out on the way to the output, is far above the limit.
        """
        return self.limit < self.resolution / _AVERAGED_OUT


def too_fine(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> TooFine | None:
    """Return the limit on an output that its type can hardly meet; None if it can.

    Outputs much smaller than 1 may still meet it. A limit with `rtol` beside it grows with the
    values, so nothing is said of it.
    """
    low = compared_type(recipe, target)
    limits = limits_for(recipe, target, output, override)
    limit = absolute_limit(limits)
    if low is None or limit is None or "rtol" in limits or not 0 < limit < RESOLUTION[low]:
        return None
    return TooFine(output, limit, low, tolerance_of(recipe, target, output, override).place)

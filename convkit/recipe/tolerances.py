"""Finds the tolerance that applies to an output, and its limits."""

from convkit.recipe.models import Recipe, Target, Tolerance


def tolerance_for(
    recipe: Recipe, target: Target, output: str, override: Tolerance | None
) -> Tolerance:
    """Return the tolerance that applies to an output: the nearest one given, as a whole.

    Nearest first: the command line's, the target's for this output, the target's, the recipe's for
    this output, the recipe's. A nearer tolerance replaces the others; limits are never combined.
    """
    nearest_first = (
        override,
        target.outputs.get(output),
        target.tolerance,
        recipe.verify.outputs.get(output),
    )
    return next(
        (tolerance for tolerance in nearest_first if tolerance is not None), recipe.verify.tolerance
    )


def limits_of(tolerance: Tolerance) -> dict[str, float]:
    """Return the limits that are set, by name."""
    return {
        name: float(value) for name, value in tolerance.model_dump().items() if value is not None
    }

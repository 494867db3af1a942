"""Limits from what a draft's targets were measured to be off, by precision."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convkit.host.recipe.editing.file_replacement import replace_recipe
from convkit.host.recipe.editing.text_editing import edited
from convkit.host.recipe.keys.low_precision_types import low_type, usual_nrmse
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.keys.tolerances import FROM_PRECISION, tolerance_of
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import RunRecord

# Other inputs may be off by more than those that were tried, by this factor.
_ROOM = 3

Limits = dict[str, dict[str, float]]


def write_limits(path: Path, record: RunRecord) -> Iterator[str]:
    """Write the limits that follow from a run into its recipe, and yield what was written, by type.

    Raises ConvkitError if the recipe changed during the run, or cannot be edited.
    """
    loaded = load_recipe(path)
    found = measured_limits(loaded.recipe, record)
    if not found:
        yield "no limits to write: no target in low precision was verified"
        return
    content: dict[str, Any] = loaded.document.content
    verify = dict(content.get("verify", {}))
    by_precision = dict(verify.get("by_precision", {}))
    for kind, limits in found.items():
        outputs = {name: {"nrmse": limit} for name, limit in limits.items()}
        by_precision[kind] = dict(by_precision.get(kind, {})) | {"outputs": outputs}
    wanted = {**content, "verify": verify | {"by_precision": by_precision}}
    replace_recipe(loaded, edited(loaded.text, wanted), "run")
    for kind, limits in found.items():
        listed = ", ".join(f"{name} nrmse <= {limit:g}" for name, limit in limits.items())
        yield f"wrote verify.by_precision.{kind}: {listed}"


def measured_limits(recipe: Recipe, record: RunRecord) -> Limits:
    """Return limits by type and output, from the verified targets of each low type: never above
    what the type is allowed without them. What a recipe limits already is left alone.
    """
    found: Limits = {}
    for report in record.targets:
        target = recipe.targets.get(report.name)  # none: the share of a part
        kind = low_type(target) if target is not None else None
        if target is None or kind is None or report.status != "verified":
            continue
        errors: dict[str, float] = {}
        for output in (o for v in report.verifications for c in v.cases for o in c.outputs):
            given = tolerance_of(recipe, target, output.output, None)
            if given.place == FROM_PRECISION and "nrmse" in output.limits:
                errors[output.output] = max(errors.get(output.output, 0.0), output.metrics.nrmse)
        limits = found.setdefault(kind, {})
        for name, error in errors.items():
            usual = usual_nrmse(kind)
            limits[name] = max(limits.get(name, 0.0), min(usual, _rounded_up(_ROOM * error)))
    exact = {
        kind: {n: limit for n, limit in each.items() if limit > 0} for kind, each in found.items()
    }
    return {kind: limits for kind, limits in exact.items() if limits}


def _rounded_up(number: float) -> float:
    """Return a number rounded up to two digits."""
    if not number > 0:
        return 0.0
    power = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / power - 1e-9) * power:.1e}")

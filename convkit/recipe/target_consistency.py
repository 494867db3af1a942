"""Consistency between all parts of a recipe, including its targets. Reads plain values, like
`consistency`.
"""

from collections.abc import Mapping

from convkit.recipe.archive_consistency import archive_faults
from convkit.recipe.bench import bench_faults
from convkit.recipe.consistency import Fault, consistency_faults, mapping
from convkit.recipe.data_axes import data_axes_faults
from convkit.recipe.evaluate import evaluate_faults
from convkit.recipe.parts_consistency import parts_faults
from convkit.recipe.postprocess import postprocess_faults
from convkit.recipe.preprocess import preprocess_faults
from convkit.recipe.registry import target_models
from convkit.recipe.steps import steps_faults
from convkit.recipe.waivers import waiver_faults


def faults_between_parts(recipe: Mapping[str, object]) -> list[Fault]:
    """Return the inconsistencies between the parts of a recipe, including its targets, under the
    keys a user writes.
    """
    faults = [
        *consistency_faults(recipe),
        *preprocess_faults(recipe),
        *postprocess_faults(recipe),
        *archive_faults(recipe),
        *steps_faults(recipe),
        *data_axes_faults(recipe),
        *bench_faults(recipe),
        *evaluate_faults(recipe),
        *waiver_faults(recipe),
        *parts_faults(recipe, faults_between_parts),
    ]
    if recipe.get("parts"):
        return faults  # targets are checked with each part
    models = target_models()
    for name, given in mapping(recipe.get("targets")).items():
        target = mapping(given)
        if (model := models.get(str(target.get("runtime")))) is not None:
            faults += model.faults(str(name), target, recipe)
    return faults

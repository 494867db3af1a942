"""Consistency between all parts of a recipe, including its targets. Reads plain values, like
`consistency`.
"""

from collections.abc import Iterator, Mapping

from convkit.host.recipe.checks.axes_from_data import data_axes_faults
from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, consistency_faults, mapping
from convkit.host.recipe.keys.bench import bench_faults
from convkit.host.recipe.keys.call_steps import steps_faults
from convkit.host.recipe.keys.evaluation import evaluate_faults
from convkit.host.recipe.keys.model_parts import parts_faults
from convkit.host.recipe.keys.postprocessing import postprocess_faults
from convkit.host.recipe.keys.preprocessing import preprocess_faults
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.recipe.keys.waivers import waiver_faults


def faults_between_parts(recipe: Mapping[str, object]) -> list[RecipeFault]:
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


def archive_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Yield exporters that cannot read a TorchScript archive: the recipe's and its targets'."""
    if mapping(recipe.get("model")).get("torchscript") is None:
        return
    places: list[tuple[str, ...]] = [("export",)]
    places += [("targets", str(name), "export") for name in mapping(recipe.get("targets"))]
    for place in places:
        owner: Mapping[str, object] = recipe
        for key in place:
            owner = mapping(owner.get(key))
        exporter = owner.get("exporter", "torchscript")
        if exporter != "torchscript":
            yield RecipeFault(
                (*place, "exporter"),
                f"{exporter} cannot read a TorchScript archive; write torchscript, or remove it",
            )

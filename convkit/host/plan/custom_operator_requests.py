"""A recipe's custom operators, as its workers use them. Pure."""

from convkit.host.plan.stage_requests import Places
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.messages import CustomOps, OperatorLibrary, Translation


def custom_ops_of(recipe: Recipe, places: Places, *, exports: bool = False) -> CustomOps:
    """Return a recipe's custom operators as a worker uses them; the translations only if it
    `exports`.
    """
    libraries, translations = [], []
    for entry in recipe.custom_ops:
        if entry.library is not None:
            path = entry.library if entry.package is not None else places.file(entry.library)
            libraries.append(OperatorLibrary(path, entry.package, entry.runtime))
        elif entry.translation is not None and exports:
            file, _, function = entry.translation.rpartition(":")
            translations.append(Translation(places.file(file), function))
    return CustomOps(tuple(libraries), tuple(translations))

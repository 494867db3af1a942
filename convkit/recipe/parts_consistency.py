"""Consistency of a recipe with `parts:`. Reads plain values, like `consistency`."""

from collections.abc import Callable, Iterator, Mapping

from convkit.recipe.consistency import Fault, mapping, perhaps
from convkit.recipe.join import resolve_join
from convkit.recipe.parts import part_content, place_in_recipe

# Keys about one graph, and where to write them instead.
_OF_ONE_GRAPH = {
    "model": "a recipe has a model, or parts; write it under the part",
    "steps": "is about one graph; write it under the part, or a loop under `join`",
}


def parts_faults(
    recipe: Mapping[str, object], check: Callable[[Mapping[str, object]], list[Fault]]
) -> Iterator[Fault]:
    """Yield the inconsistencies of a recipe's parts and of how they are joined. `check` returns
    those of a recipe of one graph.
    """
    parts = mapping(recipe.get("parts"))
    if not parts:
        if "join" in recipe:
            yield Fault(("join",), "joins `parts`, and the recipe has none; remove it")
        return
    for key, message in _OF_ONE_GRAPH.items():
        if recipe.get(key) is not None:
            yield Fault((key,), message)
    targets = mapping(recipe.get("targets"))
    for name, part in parts.items():
        for target in mapping(mapping(part).get("targets")):
            if target not in targets:
                known = ", ".join(map(str, targets))
                yield Fault(
                    ("parts", name, "targets", target),
                    f"is not one of the recipe's targets{perhaps(target, targets)}; targets:"
                    f" {known}. Every target joins all parts",
                )
        for fault in check(part_content(recipe, name)):
            yield Fault(place_in_recipe(fault.path, recipe, name), fault.message)
    if not recipe.get("join"):
        yield Fault(("parts",), "needs `join`: how the parts call each other")
        return
    yield from resolve_join(recipe).faults

"""Consistency of a recipe whose model is a TorchScript archive. Reads plain values, like
`consistency`.
"""

from collections.abc import Iterator, Mapping

from convkit.recipe.consistency import Fault, mapping


def archive_faults(recipe: Mapping[str, object]) -> Iterator[Fault]:
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
            yield Fault(
                (*place, "exporter"),
                f"{exporter} cannot read a TorchScript archive; write torchscript, or remove it",
            )

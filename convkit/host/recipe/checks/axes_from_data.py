"""Checks the axes from data of a recipe: where they may occur, and how rows are matched.

Like `consistency`, the checks read plain values and skip anything malformed.
"""

from collections.abc import Iterator, Mapping

from convkit.host.recipe.checks.names_axes_and_sizes import (
    KeyPath,
    RecipeFault,
    dimensions,
    mapping,
    perhaps,
)


def data_axes_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Data axes count rows of outputs: inputs have none, and nothing can be computed from them."""
    axes = {name: mapping(axis) for name, axis in mapping(recipe.get("axes")).items()}
    counts = [name for name, axis in axes.items() if axis.get("from") == "data"]
    seen: dict[KeyPath, str] = {}
    for path, dimension, names in dimensions(recipe):
        for name in (name for name in names if name in counts):
            if path[0] == "inputs":
                yield RecipeFault(
                    path,
                    f"the size of {name!r} comes from data, so only outputs can have it; give an"
                    " input's axis min, typical and max",
                )
            elif dimension != name:
                yield RecipeFault(
                    path, f"the size of {name!r} comes from data; write {name!r} alone"
                )
            elif path[:2] in seen:
                yield RecipeFault(
                    path,
                    f"a shape can have one axis from data; this one has {seen[path[:2]]!r} already",
                )
            seen.setdefault(path[:2], name)
    for path, tensor in _outputs(recipe):
        if tensor.get("mask") is not None and path in seen:
            yield RecipeFault((*path, "mask"), "an output along an axis from data can have no mask")
    for name in counts:
        yield from _match_faults(name, mapping(axes[name].get("match")), recipe)


def _match_faults(
    axis: str, match: Mapping[str, object], recipe: Mapping[str, object]
) -> Iterator[RecipeFault]:
    shapes = {}
    for _, tensor in _outputs(recipe):
        shape = tensor.get("shape")
        if isinstance(shape, list | tuple) and axis in shape:
            shapes[str(tensor.get("name"))] = list(shape)
    for key in ("boxes", "equal", "scores"):
        output = match.get(key)
        if not isinstance(output, str):
            continue
        path = ("axes", axis, "match", key)
        if output not in shapes:
            yield RecipeFault(
                path,
                f"{output!r} is not an output with the axis {axis!r}{perhaps(output, shapes)};"
                f" outputs with it: {', '.join(shapes) or 'none'}",
            )
        elif key == "boxes" and shapes[output][-1] != 4:
            yield RecipeFault(path, f"boxes have 4 numbers per row; {output!r} is {shapes[output]}")
        elif key == "scores" and any(
            isinstance(size, int) and size != 1 for size in shapes[output]
        ):
            yield RecipeFault(
                path, f"scores have one number per row; {output!r} is {shapes[output]}"
            )


def _outputs(recipe: Mapping[str, object]) -> Iterator[tuple[KeyPath, Mapping[str, object]]]:
    listed = recipe.get("outputs")
    for place, tensor in enumerate(listed if isinstance(listed, list | tuple) else ()):
        if isinstance(tensor, dict):
            yield ("outputs", place), tensor

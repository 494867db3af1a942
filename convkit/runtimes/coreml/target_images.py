"""What a recipe must have so that a Core ML program takes images."""

from collections.abc import Iterator, Mapping

from convkit.recipe.consistency import Fault, mapping
from convkit.recipe.steps import tensors_by_name
from convkit.runtimes.coreml.target_states import open_axis


def image_faults(place: tuple[str, ...], recipe: Mapping[str, object]) -> Iterator[Fault]:
    """Return why a program cannot take the recipe's images: one at a time, of one size."""
    place = (*place, "images")
    fused = {
        name: tensor["shape"]
        for name, tensor in tensors_by_name(recipe, "inputs").items()
        if mapping(tensor.get("preprocess")).get("fuse") is True
    }
    if not fused:
        message = "needs an input whose images the model normalizes; write preprocess: {fuse: true}"
        yield Fault(place, message)
    axes = mapping(recipe.get("axes"))
    for name, shape in fused.items():
        for dimension in shape:
            if (axis := open_axis(dimension, recipe)) is not None:
                message = (
                    f"an image has one size, and {name!r} has the axis {axis!r}; write"
                    f" axes.{axis} with equal min and max, or a number in the shape"
                )
                yield Fault(place, message)
        first = shape[0] if shape else 1
        rows = mapping(axes.get(first)).get("max") if isinstance(first, str) else first
        if rows != 1:
            yield Fault(place, f"Core ML takes one image at a time: let {name!r} have one row")

"""What must hold between a target and the rest of its recipe. Reads plain values, as `consistency`
does.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from convkit.recipe.consistency import Fault, consistency_faults, dimensions, mapping, perhaps


def faults_between_parts(recipe: Mapping[str, object]) -> list[Fault]:
    """Return what does not hold between the parts of a recipe, its targets among them, under the
    keys a user writes.
    """
    return [*consistency_faults(recipe), *(fault for check in _CHECKS for fault in check(recipe))]


def _programs_have_a_module(recipe: Mapping[str, object]) -> Iterator[Fault]:
    if mapping(recipe.get("model")).get("onnx") is None:
        return
    for name, target in mapping(recipe.get("targets")).items():
        if mapping(target).get("runtime") == "coreml":
            message = (
                "converts the model itself, and model.onnx is a graph; name the model that it was"
                " exported from"
            )
            yield Fault(("targets", str(name), "runtime"), f"coreml {message} under model")


# Core ML takes no more shapes of one input than this, and before iOS 18 enumerates those of one
# input only.
_MOST_SHAPES = 128
_ENUMERATES_SEVERAL = ("iOS18", "macOS15", "watchOS11", "tvOS18", "visionOS2")


def _shapes_can_be_enumerated(recipe: Mapping[str, object]) -> Iterator[Fault]:
    axes = [mapping(axis) for axis in mapping(recipe.get("axes")).values()]
    sizes = [
        {size for key in ("min", "typical", "max") if isinstance(size := axis.get(key), int)}
        for axis in axes
    ]
    count = math.prod(max(len(each), 1) for each in sizes)
    varying = {path for path, _, names in dimensions(recipe) if path[0] == "inputs" for _ in names}
    inputs = {path[1] for path in varying}
    for name, given in mapping(recipe.get("targets")).items():
        target = mapping(given)
        if target.get("shapes") != "enumerated":
            continue
        if count > _MOST_SHAPES:
            message = (
                f"{count} combinations of the axes' sizes; Core ML takes {_MOST_SHAPES}: write"
                " shapes: range"
            )
            yield Fault(("targets", str(name), "shapes"), message)
        if len(inputs) > 1 and target.get("minimum", "iOS17") not in _ENUMERATES_SEVERAL:
            message = (
                f"enumerates the shapes of {len(inputs)} inputs, which iOS18 is the first to know;"
                " write "
            )
            yield Fault(
                ("targets", str(name), "shapes"), f"{message}minimum: iOS18, or shapes: range"
            )


def _profiles_serve_the_axes(recipe: Mapping[str, object]) -> Iterator[Fault]:
    axes = {str(name): mapping(axis) for name, axis in mapping(recipe.get("axes")).items()}
    for name, given in mapping(recipe.get("targets")).items():
        profiles = mapping(given).get("profiles")
        ranges = []
        for i, profile in enumerate(profiles if isinstance(profiles, list | tuple) else ()):
            for axis, sizes in mapping(profile).items():
                place = ("targets", str(name), "profiles", i, str(axis))
                if axis not in axes:
                    yield Fault(
                        place,
                        f"is no axis{perhaps(str(axis), axes)}; axes: {', '.join(axes) or 'none'}",
                    )
                elif not _lies_within(mapping(sizes), axes[axis]):
                    least, most = axes[axis].get("min"), axes[axis].get("max")
                    yield Fault(
                        place, f"reaches beyond the axis, which goes from {least} to {most}"
                    )
            ranges.append({axis: mapping(mapping(profile).get(axis, axes[axis])) for axis in axes})
        if ranges and (lost := _unserved(axes, ranges)) is not None:
            sizes_text = ", ".join(f"{axis}={size}" for axis, size in lost.items())
            message = f"no profile serves {sizes_text}, which axes: allows; widen one, or add one"
            yield Fault(("targets", str(name), "profiles"), message)


def _lies_within(inner: Mapping[str, object], outer: Mapping[str, object]) -> bool:
    sizes = [outer.get("min"), inner.get("min"), inner.get("max"), outer.get("max")]
    numbers = [size for size in sizes if isinstance(size, int)]
    # What is no number is reported where the sizes themselves are checked.
    return len(numbers) < len(sizes) or (numbers[0] <= numbers[1] and numbers[2] <= numbers[3])


def _unserved(
    axes: Mapping[str, Mapping[str, object]], ranges: list[dict[str, Mapping[str, object]]]
) -> dict[str, int] | None:
    """Return a combination of smallest, typical and largest sizes that lies in no profile."""
    sizes = [
        [size for key in ("min", "typical", "max") if isinstance(size := axis.get(key), int)]
        for axis in axes.values()
    ]
    for combination in itertools.product(*sizes):
        point = dict(zip(axes, combination, strict=True))
        if not any(
            all(
                _lies_within({"min": size, "max": size}, profile[axis])
                for axis, size in point.items()
            )
            for profile in ranges
        ):
            return point
    return None


_CHECKS: tuple[Callable[[Mapping[str, object]], Iterator[Fault]], ...] = (
    _programs_have_a_module,
    _shapes_can_be_enumerated,
    _profiles_serve_the_axes,
)

"""Consistency between optimization profiles and the axes of a recipe. Reads plain values."""

import itertools
from collections.abc import Iterator, Mapping

from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, mapping, perhaps


def profile_faults(
    name: str, target: Mapping[str, object], recipe: Mapping[str, object]
) -> Iterator[RecipeFault]:
    """Return profiles of unknown axes, profiles beyond an axis's range, and sizes that no profile
    covers.
    """
    axes = {name: mapping(axis) for name, axis in mapping(recipe.get("axes")).items()}
    profiles = target.get("profiles")
    ranges = []
    for i, profile in enumerate(profiles if isinstance(profiles, list | tuple) else ()):
        for axis, sizes in mapping(profile).items():
            place = ("targets", name, "profiles", i, str(axis))
            if axis not in axes:
                yield RecipeFault(
                    place,
                    f"is not an axis{perhaps(str(axis), axes)}; axes: {', '.join(axes) or 'none'}",
                )
            elif not _lies_within(mapping(sizes), axes[axis]):
                least, most = axes[axis].get("min"), axes[axis].get("max")
                yield RecipeFault(
                    place, f"reaches beyond the axis, which ranges from {least} to {most}"
                )
        ranges.append({axis: mapping(mapping(profile).get(axis, axes[axis])) for axis in axes})
    if ranges and (lost := _unserved(axes, ranges)) is not None:
        sizes_text = ", ".join(f"{axis}={size}" for axis, size in lost.items())
        message = f"no profile serves {sizes_text}, which axes: allows; widen one, or add one"
        yield RecipeFault(("targets", name, "profiles"), message)


def _lies_within(inner: Mapping[str, object], outer: Mapping[str, object]) -> bool:
    sizes = [outer.get("min"), inner.get("min"), inner.get("max"), outer.get("max")]
    numbers = [size for size in sizes if isinstance(size, int)]
    # Values that are not numbers are reported when the sizes themselves are checked.
    return len(numbers) < len(sizes) or (numbers[0] <= numbers[1] and numbers[2] <= numbers[3])


def _unserved(
    axes: Mapping[str, Mapping[str, object]], ranges: list[dict[str, Mapping[str, object]]]
) -> dict[str, int] | None:
    """Return a combination of minimum, typical and maximum sizes that no profile covers."""
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

"""Optimization profiles: the shapes of inputs, from the sizes of axes. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import Contract
from convkit.runtimes.tensorrt.options import Sizes

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ShapeRange:
    """The smallest, typical and largest shape of one input, in elements."""

    least: Shape
    typical: Shape
    most: Shape

    def holds(self, shape: Shape) -> bool:
        """Return True if a shape is between the smallest and the largest."""
        return len(shape) == len(self.least) and all(
            low <= size <= high
            for low, size, high in zip(self.least, shape, self.most, strict=True)
        )

    def __str__(self) -> str:
        return f"{list(self.least)} to {list(self.most)}"


Profile = Mapping[str, ShapeRange]


def shape_profiles(
    contract: Contract, wanted: Sequence[Mapping[str, Sizes]]
) -> list[dict[str, ShapeRange]]:
    """Return the profiles of a contract's inputs: the requested ones, or a single one with the
    axes' own sizes.

    Axes that a profile omits have the contract's sizes.
    """
    declared = {
        axis.name: {"min": axis.min, "typical": axis.typical, "max": axis.max}
        for axis in contract.axes
    }
    return [
        {
            spec.name: ShapeRange(
                *(
                    spec.concrete_shape(
                        {axis: sizes[moment] for axis, sizes in {**declared, **own}.items()}
                    )
                    for moment in ("min", "typical", "max")
                )
            )
            for spec in contract.inputs
        }
        for own in wanted or ({},)
    ]


def serving_profile(profiles: Sequence[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """Return the index of the first profile that covers these shapes; None if none does."""
    for number, profile in enumerate(profiles):
        if all(profile[name].holds(shape) for name, shape in shapes.items() if name in profile):
            return number
    return None

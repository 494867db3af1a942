"""The sides of pictures: fixed, or one of them open where that alone may have other sizes."""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import Dimension, TensorSpec
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# In the order of a picture's axes.
_SIDES = ("height", "width")


def settled_sides(start: Start, trials: ModuleTrials) -> Start:
    """Fix the sides of images: few models are exported for images of several sizes. One side stays
    open if only that may have other sizes, as the time of a spectrogram does.
    """
    free = [side for side in _SIDES if _moves(start, side, trials)]
    kept = free if len(free) == 1 else []
    inputs = tuple(_with_sides(spec, start.sizes, kept) for spec in start.inputs)
    sizes = {axis: size for axis, size in start.sizes.items() if axis not in ("side", *_SIDES)}
    for side in kept:
        sizes[side] = start.sizes.get(side, start.sizes.get("side", 0))
    return Start(inputs, sizes, start.samples)


def _moves(start: Start, side: str, trials: ModuleTrials) -> bool:
    """Return True if a model runs with another height, or width, of its only pictures."""
    pictures = [each for each in start.inputs if "side" in each.shape or side in each.shape]
    if len(pictures) != 1 or pictures[0].shape.count("side") == 1:
        return False
    inputs = tuple(_with_sides(spec, start.sizes, [side]) for spec in start.inputs)
    size = start.sizes.get(side, start.sizes.get("side", 0))
    return any(
        trials.run(
            inputs,
            at_full_length(inputs, start.samples, sizes := {**start.sizes, side: other}),
            sizes,
        ).worked
        for other in (size + size // 2, 2 * size)
    )


def _with_sides(spec: TensorSpec, sizes: Mapping[str, int], kept: Sequence[str]) -> TensorSpec:
    """Return an input with its sides fixed, but for those that are kept, by name."""
    shape: list[Dimension] = list(spec.shape)
    sides = [place for place, size in enumerate(shape) if size in ("side", *_SIDES)]
    for place, side in zip(sides, _SIDES, strict=False):
        size = shape[place]
        shape[place] = side if side in kept else sizes[str(size)]
    return dataclasses.replace(spec, shape=tuple(shape))

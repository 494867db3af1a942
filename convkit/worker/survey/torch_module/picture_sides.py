"""The sides of pictures: fixed, or one of them open where that alone may have other sizes."""

import dataclasses
from collections.abc import Sequence

from convkit.protocol.contract import Dimension, TensorSpec
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# In the order of a picture's axes.
_SIDES = ("height", "width")
_AXES_OF_PICTURES = 4


def settled_sides(start: Start, trials: ModuleTrials) -> Start:
    """Fix the sides of images: few models are exported for images of several sizes. One side stays
    open if only that may have other sizes, as the time of a spectrogram does.
    """
    sizes = start.sizes
    fixed = tuple(
        dataclasses.replace(
            spec,
            shape=tuple(
                sizes[str(size)] if size in ("side", *_SIDES) else size for size in spec.shape
            ),
        )
        for spec in start.inputs
    )
    left = {axis: size for axis, size in sizes.items() if axis not in ("side", *_SIDES)}
    settled = dataclasses.replace(start, inputs=fixed, sizes=left)
    return with_open_side(settled, trials)


def with_open_side(start: Start, trials: ModuleTrials) -> Start:
    """Return a start in which a picture's only axis that may have other sizes is open."""
    pictures = [spec for spec in start.inputs if len(spec.shape) == _AXES_OF_PICTURES]
    if len(pictures) != 1:
        return start
    (picture,) = pictures
    found = [
        opened
        for place, size in enumerate(picture.shape)
        if place and isinstance(size, int)
        for opened in [_opened(start, picture, place)]
        if _moves(opened, size, trials)
    ]
    return found[0] if len(found) == 1 else start


def _opened(start: Start, picture: TensorSpec, place: int) -> Start:
    """Return a start with a name for one of a picture's axes."""
    name = _SIDES[place == _AXES_OF_PICTURES - 1]
    shape: Sequence[Dimension] = picture.shape
    size = shape[place]
    assert isinstance(size, int)
    opened = dataclasses.replace(picture, shape=(*shape[:place], name, *shape[place + 1 :]))
    inputs = tuple(opened if spec is picture else spec for spec in start.inputs)
    return dataclasses.replace(start, inputs=inputs, sizes={**start.sizes, name: size})


def _moves(start: Start, size: int, trials: ModuleTrials) -> bool:
    """Return True if a model runs with another size of the axis that was opened last."""
    axis = list(start.sizes)[-1]
    for other in (size + size // 2, 2 * size):
        sizes = {**start.sizes, axis: other}
        given = at_full_length(start.inputs, start.samples, sizes)
        if other != size and trials.run(start.inputs, given, sizes).worked:
            return True
    return False

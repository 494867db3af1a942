"""Resizing of the last two axes. The sampling modes differ in the positions of the grid points."""

import math

import torch

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError


def resize_bilinear(call: OperationCall) -> torch.Tensor:
    """Interpolate linearly to a given size."""
    x, mode = call.tensor("x"), call.text("sampling_mode", "DEFAULT")
    x = _linear(x, -2, _grid(mode, x.shape[-2], call.integer("target_size_height")))
    return _linear(x, -1, _grid(mode, x.shape[-1], call.integer("target_size_width")))


def upsample_bilinear(call: OperationCall) -> torch.Tensor:
    """Interpolate linearly by a factor; the size is rounded down, and the grid spans that size."""
    x = call.tensor("x")
    corners = "align_corners" not in call.arguments or call.flag("align_corners")
    centres = (
        call.flag("half_pixel_centers") if "half_pixel_centers" in call.arguments else not corners
    )
    match corners, centres:
        case True, False:
            mode = "STRICT_ALIGN_CORNERS"
        case False, True:
            mode = "UNALIGN_CORNERS"
        case False, False:
            mode = "DEFAULT"
        case _:
            raise EvaluationError("align_corners and half_pixel_centers cannot be combined")
    height = math.floor(call.number("scale_factor_height") * x.shape[-2])
    width = math.floor(call.number("scale_factor_width") * x.shape[-1])
    x = _linear(x, -2, _grid(mode, x.shape[-2], height))
    return _linear(x, -1, _grid(mode, x.shape[-1], width))


def resize_nearest_neighbor(call: OperationCall) -> torch.Tensor:
    """Select the nearest element, rounding down, for a given size."""
    x = _nearest(call.tensor("x"), -2, call.integer("target_size_height"))
    return _nearest(x, -1, call.integer("target_size_width"))


def upsample_nearest_neighbor(call: OperationCall) -> torch.Tensor:
    """Select the nearest element, rounding down, for a factor."""
    x = call.tensor("x")
    x = _nearest(x, -2, math.floor(call.number("scale_factor_height") * x.shape[-2]))
    return _nearest(x, -1, math.floor(call.number("scale_factor_width") * x.shape[-1]))


def resize(call: OperationCall) -> torch.Tensor:
    """Resize the last `resized_dims` axes to the last sizes of `shape`; 0 keeps an axis."""
    x, count = call.tensor("x"), call.integer("resized_dims")
    sizes = call.integers("shape")[-count:] if count else []
    mode, sampling = (
        call.text("interpolation_mode", "LINEAR"),
        call.text("sampling_mode", "DEFAULT"),
    )
    if mode not in ("LINEAR", "NEAREST_NEIGHBOR"):
        raise EvaluationError(f"unknown mode {mode}")
    for axis, wanted in zip(range(-count, 0), sizes, strict=True):
        size = wanted or x.shape[axis]
        if mode == "LINEAR":
            x = _linear(x, axis, _grid(sampling, x.shape[axis], size))
        elif sampling == "DEFAULT":
            x = _nearest(x, axis, size)
        else:
            raise EvaluationError(
                f"the nearest neighbor under {sampling} is not defined by the format"
            )
    return x


def _grid(mode: str, have: int, want: int) -> torch.Tensor:
    """Return the sampling positions along the input's axis, in elements, for the output's
    elements.
    """
    places = torch.arange(want, dtype=torch.float64)
    match mode:
        case "STRICT_ALIGN_CORNERS" | "ALIGN_CORNERS":
            points = places * ((have - 1) / max(want - 1, 1))
            if want == 1 and mode == "ALIGN_CORNERS":
                points = points + (have - 1) / 2
        case "DEFAULT":
            points = places * (have / want)
        case "OFFSET_CORNERS":
            step = max(1, have - 1) / want
            points = 0.5 * step + places * step
        case "UNALIGN_CORNERS":
            points = (places + 0.5) * (have / want) - 0.5
        case _:
            raise EvaluationError(f"unknown sampling mode {mode}")
    return points.clamp(0, have - 1)


def _linear(x: torch.Tensor, axis: int, points: torch.Tensor) -> torch.Tensor:
    below = points.floor().long()
    above = (below + 1).clamp(max=x.shape[axis] - 1)
    shape = [-1 if each == axis % x.dim() else 1 for each in range(x.dim())]
    weight = (points - below).reshape(shape)
    lower, upper = x.index_select(axis, below), x.index_select(axis, above)
    return lower * (1 - weight) + upper * weight


def _nearest(x: torch.Tensor, axis: int, want: int) -> torch.Tensor:
    have = x.shape[axis]
    return x.index_select(axis, (torch.arange(want) * have // want).clamp(max=have - 1))

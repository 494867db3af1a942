"""The angle of a point (x, y), as C's `atan2` defines it (C17, F.10.1.4), from `atan` alone.

torch's ONNX exporter turns the angle by -pi wherever y is not above 0: for y = 0 and x < 0 it
gives -pi in place of pi. Of two infinities it makes NaN, and of NaN 0.
"""

import math

import torch


def angle(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """`torch.atan2(y, x)`, in radians from -pi to pi, for shapes that broadcast.

    Two infinities give the angle of the diagonal, NaN gives NaN, and the sign of a zero counts.
    """
    kind = torch.result_type(y, x)
    if not kind.is_floating_point:
        kind = torch.get_default_dtype()
    y, x = torch.broadcast_tensors(y.to(kind), x.to(kind))
    diagonal = (y.abs() == math.inf) & (x.abs() == math.inf)
    y, x = torch.where(diagonal, y.sign(), y), torch.where(diagonal, x.sign(), x)
    upright = x == 0
    slope = torch.atan(y / torch.where(upright, 1.0, x))
    turned = torch.where(_is_below(y), slope - math.pi, slope + math.pi)
    slope = torch.where(_is_below(x), turned, slope)
    for sign in (1, -1):
        slope = torch.where(upright & (y * sign > 0), sign * math.pi / 2, slope)
    return slope


def _is_below(values: torch.Tensor) -> torch.Tensor:
    """Say where values are below 0, or a zero with a minus sign, whose reciprocal is -infinity."""
    return (values < 0) | ((values == 0) & (torch.ones_like(values) / values < 0))

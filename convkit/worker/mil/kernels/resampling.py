"""Sampling of images at given coordinates.

torch's own sampling decides which pixel is the nearest in a way that depends on the processor.
"""

import torch

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

# Padding modes, and whether corners must be aligned. Reflection is about the border pixels'
# centers, symmetry about their edges.
_PADDING = {
    ("constant", True),
    ("constant", False),
    ("border", True),
    ("border", False),
    ("reflection", True),
    ("symmetric", False),
}


def resample(call: OperationCall) -> torch.Tensor:
    """Sample `x` of [batch, channels, height, width] at normalized coordinates (x, y) of [batch,
    rows, columns, 2]: outside, at the border, reflected or a constant.

    Returns [batch, channels, rows, columns]. The nearest pixel is that of the place rounded half to
    even. Raises EvaluationError for modes that the format does not define.
    """
    padding, corners = call.text("padding_mode"), call.flag("align_corners")
    if (padding, corners) not in _PADDING:
        raise EvaluationError(f"padding_mode {padding} with align_corners {corners} is undefined")
    x, places = call.tensor("x"), call.tensor("coordinates").double()
    match call.text("coordinates_mode"):
        case "normalized_zero_to_one":
            places = 2 * places - 1
        case "normalized_minus_one_to_one":
            pass
        case other:
            raise EvaluationError(f"coordinates_mode {other} is undefined")
    outside = call.number("padding_value") if padding == "constant" else 0.0
    columns, rows = (
        _pixels(places[..., axis], x.shape[-1 - axis], padding, corners=corners)
        for axis in range(2)
    )
    if call.text("sampling_mode") == "nearest":
        return _taken(x, rows.float().round(), columns.float().round(), outside)
    top, left = rows.floor(), columns.floor()
    down, right = (rows - top)[:, None], (columns - left)[:, None]
    upper, lower = (
        _taken(x, row, left, outside) * (1 - right) + _taken(x, row, left + 1, outside) * right
        for row in (top, top + 1)
    )
    return upper * (1 - down) + lower * down


def _pixels(places: torch.Tensor, size: int, padding: str, *, corners: bool) -> torch.Tensor:
    """Return places from -1 to 1 in pixels, inside the axis unless the padding is a constant.

    NaN is at the first pixel if not, and outside if it is.
    """
    pixels = (places + 1) * ((size - 1) / 2) if corners else ((places + 1) * size - 1) / 2
    if padding == "constant":
        return pixels.nan_to_num(-2.0).clamp(-2, size + 1)
    if padding == "reflection":
        pixels = _reflected(pixels, 0.0, size - 1.0)
    elif padding == "symmetric":
        pixels = _reflected(pixels, -0.5, float(size))
    return pixels.nan_to_num(0.0).clamp(0, size - 1)


def _reflected(pixels: torch.Tensor, start: float, length: float) -> torch.Tensor:
    """Reflect at both ends of an interval, as often as needed."""
    if length == 0:
        return torch.zeros_like(pixels)
    away = (pixels - start).abs() % (2 * length)
    return start + torch.minimum(away, 2 * length - away)


def _taken(
    x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, outside: float
) -> torch.Tensor:
    """Return the pixels of every channel at whole places; `outside` where there is none."""
    height, width = x.shape[-2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    flat = rows.clamp(0, height - 1).long() * width + columns.clamp(0, width - 1).long()
    at = flat.reshape(len(x), 1, -1).expand(-1, x.shape[1], -1)
    taken = x.flatten(2).gather(2, at).reshape(*x.shape[:2], *rows.shape[1:])
    return torch.where(inside[:, None], taken, outside)

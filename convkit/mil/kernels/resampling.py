"""Sampling of images at given coordinates."""

import torch

from convkit.mil.call import Call
from convkit.mil.errors import EvaluationError

# Padding modes in torch's words. torch's reflection is about the border pixels' centers if corners
# are aligned, otherwise about their edges, which a program calls symmetric.
_PADDING = {
    ("constant", True): "zeros",
    ("constant", False): "zeros",
    ("border", True): "border",
    ("border", False): "border",
    ("reflection", True): "reflection",
    ("symmetric", False): "reflection",
}


def resample(call: Call) -> torch.Tensor:
    """Sample at normalized coordinates (x, y): outside, at the border, reflected or a constant."""
    padding, corners = call.text("padding_mode"), call.flag("align_corners")
    if (padding, corners) not in _PADDING:
        raise EvaluationError(f"padding_mode {padding} with align_corners {corners} is undefined")
    x, places = call.tensor("x"), call.tensor("coordinates")
    match call.text("coordinates_mode"):
        case "normalized_zero_to_one":
            places = 2 * places - 1
        case "normalized_minus_one_to_one":
            pass
        case other:
            raise EvaluationError(f"coordinates_mode {other} is undefined")
    outside = call.number("padding_value") if padding == "constant" else 0.0
    found = torch.nn.functional.grid_sample(
        x - outside,
        places.to(x.dtype),
        mode=call.text("sampling_mode"),
        padding_mode=_PADDING[padding, corners],
        align_corners=corners,
    )
    return found + outside

"""Division that rounds: torch's exporter computes that of whole numbers in float32, which rounds
from 2**24 on, and rounds others down as `remainders` says.
"""

from typing import TypeAlias

import torch

from convkit.worker.exporters.decompositions.remainders import floor_quotient, has_fractions

Number: TypeAlias = torch.Tensor | float


def rounded_quotient(
    dividend: Number, divisor: Number, *, rounding_mode: str | None = None
) -> torch.Tensor:
    """`torch.div`, which rounds down (`floor`), toward zero (`trunc`) or not at all (None).

    Whole numbers are exact, and so is what is rounded down.
    """
    if rounding_mode is None:
        return torch.true_divide(dividend, divisor)
    if not divides_whole(dividend, divisor):
        if rounding_mode == "floor" and has_fractions(dividend, divisor):
            return floor_quotient(dividend, divisor)
        quotient = torch.true_divide(dividend, divisor)
        return torch.floor(quotient) if rounding_mode == "floor" else torch.trunc(quotient)
    below = torch.floor_divide(dividend, divisor)
    if rounding_mode == "floor":
        return below
    differs = (dividend - below * divisor) != 0
    return below + (differs & ((dividend < 0) != (divisor < 0))).to(below.dtype)


def divides_whole(dividend: Number, divisor: Number, **_: object) -> bool:
    """Say whether both are whole numbers, so that a quotient that rounds is one, too."""
    return not any(
        each.is_floating_point() if isinstance(each, torch.Tensor) else isinstance(each, float)
        for each in (dividend, divisor)
    )


def rounds(dividend: Number, divisor: Number, *, rounding_mode: str | None = None) -> bool:
    """Say whether a call of `torch.div` rounds as the exporter does not."""
    is_down = rounding_mode == "floor"
    return is_down or (rounding_mode is not None and divides_whole(dividend, divisor))

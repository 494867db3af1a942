"""Division of whole numbers that rounds: torch's exporter computes it in float32, which rounds
whole numbers from 2**24 on.
"""

from typing import TypeAlias

import torch

Number: TypeAlias = torch.Tensor | float


def rounded_quotient(
    dividend: Number, divisor: Number, *, rounding_mode: str | None = None
) -> torch.Tensor:
    """`torch.div`, which rounds down (`floor`), toward zero (`trunc`) or not at all (None).

    Whole numbers are exact. Those with a fraction are divided as the exporter does.
    """
    if rounding_mode is None:
        return torch.true_divide(dividend, divisor)
    if not divides_whole(dividend, divisor):
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


def rounds_whole(dividend: Number, divisor: Number, *, rounding_mode: str | None = None) -> bool:
    """Say whether a call of `torch.div` rounds a quotient of whole numbers."""
    return rounding_mode is not None and divides_whole(dividend, divisor)

"""Whole numbers and how often values occur, by comparing all with all: modes, and common
divisors.
"""

import torch

# No pair of numbers of so many bits takes Euclid's algorithm more steps: the worst are Fibonacci's
# numbers (G. Lamé, 1844), of which F(93) needs 63 bits, and F(47) 31.
_EUCLIDEAN_STEPS = {torch.int64: 92, torch.int32: 46, torch.int16: 23, torch.int8: 11}


def mode(
    x: torch.Tensor,
    dim: int = -1,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.mode(dim)`: of values that are equally frequent the smallest, with its last index."""
    last = x.movedim(dim, -1)
    counts = (last.unsqueeze(-1) == last.unsqueeze(-2)).sum(-1)
    others = torch.inf if x.is_floating_point() else last.max()
    is_mode = counts == counts.amax(-1, keepdim=True)
    found = torch.where(is_mode, last, others).amin(-1, keepdim=True)
    places = torch.where(last == found, torch.arange(last.shape[-1]), 0).amax(-1, keepdim=True)
    found, places = found.movedim(-1, dim), places.movedim(-1, dim)
    return (found, places) if keepdim else (found.squeeze(dim), places.squeeze(dim))


def greatest_common_divisor(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.gcd`, by as many steps of Euclid's algorithm as the element type may need."""
    one, other = torch.broadcast_tensors(one.abs(), other.abs())
    for _ in range(_EUCLIDEAN_STEPS.get(torch.promote_types(one.dtype, other.dtype), 92)):
        is_done = other == 0
        rest = torch.remainder(one, torch.where(is_done, 1, other))
        one, other = torch.where(is_done, one, other), rest
    return one


def least_common_multiple(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.lcm`: 0 if one of both is."""
    divisor = greatest_common_divisor(one, other)
    shares = torch.div(one, torch.where(divisor == 0, 1, divisor), rounding_mode="floor")
    return (shares * other).abs()

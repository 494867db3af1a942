"""Operators of floats that torch has for whole numbers and bools too, and ONNX has not.

Each leaves calls with floats as they are.
"""

import math
from collections.abc import Callable

import torch

_Function = Callable[[torch.Tensor], torch.Tensor]


def is_whole(x: torch.Tensor, *_: object, **__: object) -> bool:
    """Say whether a tensor is of whole numbers or bools."""
    return not (x.is_floating_point() or x.is_complex())


def is_bool(x: torch.Tensor, *_: object, **__: object) -> bool:
    """Say whether a tensor is of bools."""
    return x.dtype == torch.bool


def of_whole_numbers(function: _Function) -> _Function:
    """Return a function of whole numbers and bools."""
    return lambda x: function(x) if is_whole(x) else NotImplemented


def of_bools(function: _Function) -> _Function:
    """Return a function of bools."""
    return lambda x: function(x) if is_bool(x) else NotImplemented


def rounded(x: torch.Tensor) -> torch.Tensor:
    """`floor`, `ceil`, `round` and `trunc`: what is whole stays."""
    return x.clone()


def never(x: torch.Tensor) -> torch.Tensor:
    """`isnan` and `isinf`."""
    return torch.zeros_like(x, dtype=torch.bool)


def always(x: torch.Tensor) -> torch.Tensor:
    """`isfinite`."""
    return torch.ones_like(x, dtype=torch.bool)


def as_numbers(x: torch.Tensor) -> torch.Tensor:
    """`square` of bools."""
    return x.to(torch.int64)


def angle(x: torch.Tensor) -> torch.Tensor:
    """`angle`: pi below zero."""
    return (x.to(torch.int64) < 0).to(torch.get_default_dtype()) * math.pi


def as_floats(name: str) -> _Function:
    """Return the operator of this name, of whole numbers as floats, as torch computes it."""

    def function(x: torch.Tensor) -> torch.Tensor:
        numbers = x.to(torch.get_default_dtype())
        computed: torch.Tensor = getattr(torch.ops.aten, name).default(numbers)
        return computed

    return of_whole_numbers(function)


# What torch computes of whole numbers as floats, with one argument.
OF_FLOATS = (
    *("sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("atanh", "sigmoid", "erf"),
)
# By torch's name.
OF_WHOLE_NUMBERS: dict[str, _Function] = {
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), rounded),
    **dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf"), never),
    "isfinite": always,
    "angle": angle,
}

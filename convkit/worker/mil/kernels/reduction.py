"""Reductions over axes: all of them if `axes` is absent."""

import math
from collections.abc import Callable

import torch

from convkit.worker.mil.kernels.operation_call import Kernel, OperationCall

_Reduction = Callable[[torch.Tensor, list[int], bool], torch.Tensor]


def reduction(function: _Reduction) -> Kernel:
    """Return a kernel for a function of a tensor, its axes (nonnegative) and whether to keep
    them.
    """

    def kernel(call: OperationCall) -> torch.Tensor:
        x = call.tensor("x")
        given = call.optional_integers("axes")
        axes = (
            sorted({axis % x.dim() for axis in given})
            if given is not None
            else list(range(x.dim()))
        )
        return function(x, axes, call.flag("keep_dims"))

    return kernel


def mean(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:  # noqa: FBT001
    """Mean; for integers, rounded toward zero."""
    if x.is_floating_point():
        return x.mean(axes, keepdim=keep)
    count = math.prod(x.shape[axis] for axis in axes)
    return torch.div(x.sum(axes, keepdim=keep), count, rounding_mode="trunc")


def product(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:  # noqa: FBT001
    """Product."""
    for axis in reversed(axes):
        x = x.prod(axis, keepdim=keep)
    return x


def argmax(call: OperationCall) -> torch.Tensor:
    """Index of the first largest value along `axis`."""
    return _first(call, call.tensor("x").amax)


def argmin(call: OperationCall) -> torch.Tensor:
    """Index of the first smallest value along `axis`."""
    return _first(call, call.tensor("x").amin)


def _first(call: OperationCall, extreme: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Return the index of the first extreme value: torch does not define which of several it
    returns.
    """
    x, axis, keep = call.tensor("x"), call.integer("axis"), call.flag("keep_dims")
    found = x == extreme(axis, keepdim=True)
    if x.is_floating_point():
        found = found | x.isnan()
    axis %= x.dim()
    places = torch.arange(x.shape[axis]).reshape(
        [-1 if each == axis else 1 for each in range(x.dim())]
    )
    return torch.where(found, places, x.shape[axis]).amin(axis, keepdim=keep)

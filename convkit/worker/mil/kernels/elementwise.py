"""Elementwise operations: arithmetic, comparison, logic, rounding, trigonometry."""

import inspect
from collections.abc import Callable

import torch

from convkit.worker.mil.kernels.operation_call import Kernel, OperationCall


def of(function: Callable[..., torch.Tensor]) -> Kernel:
    """Return a kernel for a function of the tensors that its parameters name."""
    names = tuple(inspect.signature(function).parameters)
    return lambda call: function(*(call.tensor(name) for name in names))


def unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    """Return a kernel for a function of `x`."""
    return lambda call: function(call.tensor("x"))


def binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kernel:
    """Return a kernel for a function of `x` and `y`, broadcast against each other."""
    return lambda call: function(call.tensor("x"), call.tensor("y"))


def divided(
    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a division of `x` by `y`, which torch rejects for integers divided by zero. They
    become zero, as on arm64 (`sdiv`); programs compute such values for sizes of empty tensors.
    """

    def divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            return function(x, y)
        return torch.where(y == 0, 0, function(x, torch.where(y == 0, 1, y)))

    return divide


def quotient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Divide; integers round toward zero."""
    return torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc")


def power(call: OperationCall) -> torch.Tensor:
    """Raise `x` to `y`. torch rejects integers raised to negative powers, which round to zero
    except for 1 and -1: their own reciprocals.
    """
    x, y = call.tensor("x"), call.tensor("y")
    if x.is_floating_point():
        return torch.pow(x, y)
    return torch.where((y < 0) & (x.abs() != 1), 0, torch.pow(x, y.abs()))

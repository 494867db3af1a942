"""Elementwise operations: arithmetic, comparison, logic, rounding, trigonometry."""

from collections.abc import Callable

import torch

from convkit.worker.mil.kernels.operation_call import Kernel, OperationCall


def unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    """Return a kernel for a function of `x`."""
    return lambda call: function(call.tensor("x"))


def binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kernel:
    """Return a kernel for a function of `x` and `y`, broadcast against each other."""
    return lambda call: function(call.tensor("x"), call.tensor("y"))


def real_div(call: OperationCall) -> torch.Tensor:
    """Divide; integers round toward zero."""
    x, y = call.tensor("x"), call.tensor("y")
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def floor_div(call: OperationCall) -> torch.Tensor:
    """Divide, rounding toward minus infinity."""
    return torch.div(call.tensor("x"), call.tensor("y"), rounding_mode="floor")


def power(call: OperationCall) -> torch.Tensor:
    """Raise `x` to `y`. torch rejects integers raised to negative powers, which round to zero
    except for 1 and -1: their own reciprocals.
    """
    x, y = call.tensor("x"), call.tensor("y")
    if x.is_floating_point():
        return torch.pow(x, y)
    return torch.where((y < 0) & (x.abs() != 1), 0, torch.pow(x, y.abs()))


def square(call: OperationCall) -> torch.Tensor:
    """Square."""
    x = call.tensor("x")
    return x * x


def rsqrt(call: OperationCall) -> torch.Tensor:
    """Reciprocal of the square root of `x + epsilon`."""
    return torch.rsqrt(call.tensor("x") + call.tensor("epsilon"))


def log(call: OperationCall) -> torch.Tensor:
    """Natural logarithm of `x + epsilon`."""
    return torch.log(call.tensor("x") + call.tensor("epsilon"))


def inverse(call: OperationCall) -> torch.Tensor:
    """Reciprocal of `x + epsilon`."""
    return torch.reciprocal(call.tensor("x") + call.tensor("epsilon"))


def clip(call: OperationCall) -> torch.Tensor:
    """Clamp `x` to at least `alpha`, then to at most `beta`."""
    return torch.minimum(torch.maximum(call.tensor("x"), call.tensor("alpha")), call.tensor("beta"))


def threshold(call: OperationCall) -> torch.Tensor:
    """Clamp `x` to at least `alpha`."""
    return torch.maximum(call.tensor("x"), call.tensor("alpha"))


def cast(call: OperationCall) -> torch.Tensor:
    """Convert the element type, floats to integers toward zero: the evaluator's rounding does
    it.
    """
    return call.tensor("x")


def select(call: OperationCall) -> torch.Tensor:
    """Select `a` where `cond` is true, `b` elsewhere. An unselected NaN or infinity has no
    effect.
    """
    return torch.where(call.tensor("cond").bool(), call.tensor("a"), call.tensor("b"))

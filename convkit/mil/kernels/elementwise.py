"""Operations that work element by element: arithmetic, comparison, logic, rounding,
trigonometry.
"""

from collections.abc import Callable

import torch

from convkit.mil.call import Call, Kernel


def unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Kernel:
    """Make a kernel of a function of `x`."""
    return lambda call: function(call.tensor("x"))


def binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Kernel:
    """Make a kernel of a function of `x` and `y`, broadcast against one another."""
    return lambda call: function(call.tensor("x"), call.tensor("y"))


def real_div(call: Call) -> torch.Tensor:
    """Divide; whole numbers towards zero."""
    x, y = call.tensor("x"), call.tensor("y")
    return torch.div(x, y) if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def floor_div(call: Call) -> torch.Tensor:
    """Divide towards minus infinity."""
    return torch.div(call.tensor("x"), call.tensor("y"), rounding_mode="floor")


def power(call: Call) -> torch.Tensor:
    """Raise `x` to `y`. torch refuses whole numbers to negative powers, which round to zero but for
    1 and -1.
    """
    x, y = call.tensor("x"), call.tensor("y")
    return torch.pow(x, y) if x.is_floating_point() else torch.pow(x.double(), y.double())


def square(call: Call) -> torch.Tensor:
    """Multiply by itself."""
    x = call.tensor("x")
    return x * x


def rsqrt(call: Call) -> torch.Tensor:
    """Reciprocal of the square root of `x + epsilon`."""
    return torch.rsqrt(call.tensor("x") + call.tensor("epsilon"))


def log(call: Call) -> torch.Tensor:
    """Natural logarithm of `x + epsilon`."""
    return torch.log(call.tensor("x") + call.tensor("epsilon"))


def inverse(call: Call) -> torch.Tensor:
    """Reciprocal of `x + epsilon`."""
    return torch.reciprocal(call.tensor("x") + call.tensor("epsilon"))


def clip(call: Call) -> torch.Tensor:
    """Bound `x` from below by `alpha`, then from above by `beta`."""
    return torch.minimum(torch.maximum(call.tensor("x"), call.tensor("alpha")), call.tensor("beta"))


def threshold(call: Call) -> torch.Tensor:
    """Bound `x` from below by `alpha`."""
    return torch.maximum(call.tensor("x"), call.tensor("alpha"))


def cast(call: Call) -> torch.Tensor:
    """Change the element type, towards zero from floats to whole numbers: the evaluator's rounding
    does it.
    """
    return call.tensor("x")


def select(call: Call) -> torch.Tensor:
    """Take `a` where `cond` holds, else `b`. A NaN or infinity that is not taken
    leaves no trace.
    """
    return torch.where(call.tensor("cond").bool(), call.tensor("a"), call.tensor("b"))

"""Activation functions. Per-channel parameters apply to the second axis."""

import torch
from torch.nn import functional

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

# The sigmoid approximation of GELU: Hendrycks and Gimpel, 2016, section 2.
_SIGMOID_SCALE = 1.702


def gelu(call: OperationCall) -> torch.Tensor:
    """Gaussian error linear unit, exact or approximated."""
    x = call.tensor("x")
    match call.text("mode", "EXACT"):
        case "EXACT":
            return functional.gelu(x)
        case "TANH_APPROXIMATION":
            return functional.gelu(x, approximate="tanh")
        case "SIGMOID_APPROXIMATION":
            return x * torch.sigmoid(_SIGMOID_SCALE * x)
        case mode:
            raise EvaluationError(f"unknown mode {mode}")


def relu6(call: OperationCall) -> torch.Tensor:
    """Clamp to [0, 6]."""
    return torch.clamp(call.tensor("x"), 0, 6)


def clamped_relu(call: OperationCall) -> torch.Tensor:
    """`min(x, beta)` for `x >= 0`, `min(alpha * x, beta)` below."""
    x, beta = call.tensor("x"), call.tensor("beta")
    return torch.minimum(torch.where(x >= 0, x, x * call.tensor("alpha")), beta)


def elu(call: OperationCall) -> torch.Tensor:
    """`alpha * (exp(x) - 1)` below zero."""
    x = call.tensor("x")
    return torch.where(x < 0, call.tensor("alpha") * torch.expm1(torch.clamp(x, max=0)), x)


def leaky_relu(call: OperationCall) -> torch.Tensor:
    """`alpha * x` below zero."""
    x = call.tensor("x")
    return torch.where(x < 0, call.tensor("alpha") * x, x)


def prelu(call: OperationCall) -> torch.Tensor:
    """`alpha * x` below zero, `alpha` of shape [channels]."""
    x = call.tensor("x")
    return torch.where(x < 0, per_channel(call.tensor("alpha"), x) * x, x)


def thresholded_relu(call: OperationCall) -> torch.Tensor:
    """Zero below `alpha`."""
    x = call.tensor("x")
    return torch.where(x < call.tensor("alpha"), torch.zeros_like(x), x)


def linear_activation(call: OperationCall) -> torch.Tensor:
    """`alpha * x + beta`."""
    return call.tensor("alpha") * call.tensor("x") + call.tensor("beta")


def scaled_tanh(call: OperationCall) -> torch.Tensor:
    """`alpha * tanh(beta * x)`."""
    return call.tensor("alpha") * torch.tanh(call.tensor("beta") * call.tensor("x"))


def sigmoid_hard(call: OperationCall) -> torch.Tensor:
    """`alpha * x + beta`, clamped to [0, 1]."""
    return torch.clamp(call.tensor("alpha") * call.tensor("x") + call.tensor("beta"), 0, 1)


def softplus_parametric(call: OperationCall) -> torch.Tensor:
    """`alpha * log(1 + exp(beta * x))`, parameters of shape [channels]."""
    x = call.tensor("x")
    alpha, beta = per_channel(call.tensor("alpha"), x), per_channel(call.tensor("beta"), x)
    return alpha * torch.logaddexp(beta * x, torch.zeros_like(x))


def softplus(call: OperationCall) -> torch.Tensor:
    """`log(1 + exp(x))`, without torch's linear shortcut for large `x`."""
    x = call.tensor("x")
    return torch.logaddexp(x, torch.zeros_like(x))


def softmax(call: OperationCall) -> torch.Tensor:
    """Exponentials over their sum along `axis`."""
    return torch.softmax(call.tensor("x"), call.integer("axis"))


def per_channel(parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Reshape a parameter of [channels] so that it broadcasts along the second axis of `x`."""
    return parameter.reshape(1, -1, *[1] * (x.dim() - 2)) if parameter.dim() == 1 else parameter

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


def softplus(x: torch.Tensor) -> torch.Tensor:
    """`log(1 + exp(x))`, without torch's linear shortcut for large `x`."""
    return torch.logaddexp(x, torch.zeros_like(x))


def per_channel(parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Reshape a parameter of [channels] so that it broadcasts along the second axis of `x`."""
    return parameter.reshape(1, -1, *[1] * (x.dim() - 2)) if parameter.dim() == 1 else parameter

"""Normalizations. What the formula leaves open (one or two passes, where to divide) is lost in the
rounding to float32.
"""

import torch
from torch.nn import functional

from convkit.worker.mil.kernels.activation import per_channel
from convkit.worker.mil.kernels.operation_call import OperationCall


def layer_norm(call: OperationCall) -> torch.Tensor:
    """Normalize over `axes`; `gamma` and `beta` have the shape of these axes."""
    x = call.tensor("x")
    given = call.optional_integers("axes")
    axes = sorted(axis % x.dim() for axis in given) if given is not None else list(range(x.dim()))
    gamma, beta = call.optional("gamma"), call.optional("beta")
    if axes == list(range(x.dim() - len(axes), x.dim())):
        return functional.layer_norm(
            x, [x.shape[axis] for axis in axes], gamma, beta, call.number("epsilon")
        )
    centred = x - x.mean(axes, keepdim=True)
    normal = centred / torch.sqrt(
        centred.square().mean(axes, keepdim=True) + call.tensor("epsilon")
    )
    shape = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    normal = normal * gamma.reshape(shape) if gamma is not None else normal
    return normal + beta.reshape(shape) if beta is not None else normal


def batch_norm(call: OperationCall) -> torch.Tensor:
    """Normalize each channel with a given mean and variance."""
    return functional.batch_norm(
        call.tensor("x"),
        call.tensor("mean"),
        call.tensor("variance"),
        call.optional("gamma"),
        call.optional("beta"),
        training=False,
        eps=call.number("epsilon"),
    )


def instance_norm(call: OperationCall) -> torch.Tensor:
    """Normalize each channel of each sample over its spatial axes."""
    x = call.tensor("x")
    axes = list(range(2, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    normal = centred / torch.sqrt(
        centred.square().mean(axes, keepdim=True) + call.tensor("epsilon")
    )
    gamma, beta = call.optional("gamma"), call.optional("beta")
    normal = normal * per_channel(gamma, x) if gamma is not None else normal
    return normal + per_channel(beta, x) if beta is not None else normal


def local_response_norm(call: OperationCall) -> torch.Tensor:
    """Divide by `(k + alpha / size * sum of squares over neighboring channels) ** beta`."""
    return functional.local_response_norm(
        call.tensor("x"),
        call.integer("size"),
        call.number("alpha"),
        call.number("beta"),
        call.number("k"),
    )

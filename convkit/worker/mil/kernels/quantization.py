"""Quantization of activations to eight bits and back."""

import torch

from convkit.worker.mil.kernels.operation_call import OperationCall


def quantize(call: OperationCall) -> torch.Tensor:
    """`clip(round(input / scale) + zero_point)` in the given type, rounding half to even."""
    data = call.tensor("input")
    scaled = torch.round(data / _along(call, call.tensor("scale"), data)) + _zero_point(call, data)
    limits = torch.iinfo(torch.uint8 if call.text("output_dtype") == "uint8" else torch.int8)
    return scaled.clamp(limits.min, limits.max)


def dequantize(call: OperationCall) -> torch.Tensor:
    """`(input - zero_point) * scale`."""
    data = call.tensor("input").float()
    return (data - _zero_point(call, data)) * _along(call, call.tensor("scale"), data)


def _zero_point(call: OperationCall, data: torch.Tensor) -> torch.Tensor:
    given = call.optional("zero_point")
    return _along(call, given.float(), data) if given is not None else torch.zeros(())


def _along(call: OperationCall, parameter: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Reshape per-element parameters of `axis` so that they broadcast."""
    if parameter.dim() == 0:
        return parameter
    axis = call.integer("axis") % data.dim()
    return parameter.reshape([-1 if each == axis else 1 for each in range(data.dim())])

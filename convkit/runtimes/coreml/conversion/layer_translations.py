"""Layers for coremltools' frontend that it refuses or gets wrong.

Normalization of groups at any batch size: coremltools 9.0 writes the batch's symbol into a constant
shape, and fails unless the batch is fixed. By the root mean square, exactly: coremltools 9.0
divides by the largest value first and leaves epsilon unscaled, an error of 1e-4, and it requires an
epsilon. The last states of an LSTM.
"""

import copy
from functools import partial
from typing import Any

import numpy as np

from convkit.runtimes.coreml.conversion.frontend_arguments import Translation, arguments, value

_NAMES = ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")
_ROOT_MEAN_SQUARE_NAMES = ("input", "normalized_shape", "weight", "eps")
# An LSTM's results. coremltools binds them to the names that TorchScript has for each; torch.export
# has one for all three, so the states were lost.
_RESULTS = ("sequence", "hidden", "cell")
_NATIVE_NAMES = ("input", "weight", "bias", "N", "C", "HxW", "group", "eps")


def group_norm(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """Normalize an input of shape [batch, channels, ...] over groups of its channels."""
    x, groups, weight, bias, epsilon, _ = arguments(context, node, _NAMES)
    epsilon = 1e-5 if epsilon is None else float(value(epsilon))
    result = _normalized(x, int(value(groups)), weight, bias, epsilon, node.name)
    context.add(result, node.name)


def native_group_norm(context: Any, node: Any) -> None:  # noqa: ANN401
    """Return the same, and None for the statistics, which inference does not use."""
    given = dict(zip(_NATIVE_NAMES, arguments(context, node, _NATIVE_NAMES), strict=True))
    result = _normalized(
        given["input"],
        int(value(given["group"])),
        given["weight"],
        given["bias"],
        float(value(given["eps"])),
        node.name,
    )
    context.add((result, None, None), node.name)


def rms_norm(context: Any, node: Any) -> None:  # noqa: ANN401
    """Divide by the root mean square over the last axes: `x / sqrt(mean(x^2) + eps) * weight`."""
    from coremltools.converters.mil.mil import Builder, types

    x, shape, weight, epsilon = arguments(context, node, _ROOT_MEAN_SQUARE_NAMES)
    number = types.nptype_from_builtin(x.dtype)
    added = np.finfo(np.float32).eps if epsilon is None else value(epsilon)
    axes = list(range(-len(value(shape)), 0))
    mean = Builder.reduce_mean(x=Builder.mul(x=x, y=x), axes=axes, keep_dims=True)
    scale = Builder.rsqrt(x=Builder.add(x=mean, y=number(added)), epsilon=number(0))
    result = Builder.mul(x=x, y=scale)
    if weight is not None:
        result = Builder.mul(x=result, y=weight)
    context.add(Builder.identity(x=result, name=node.name))


def _normalized(x: Any, groups: int, weight: Any, bias: Any, epsilon: float, name: str) -> Any:  # noqa: ANN401
    """`(x - mean) / sqrt(variance + epsilon) * weight + bias`; weight and bias of shape
    [channels], or None.
    """
    from coremltools.converters.mil.mil import Builder, types

    channels, beyond = int(x.shape[1]), x.rank - 2
    sizes = Builder.shape(x=x)
    batch = Builder.slice_by_index(x=sizes, begin=[0], end=[1])
    parts = [batch, [groups, channels // groups]]
    if beyond:
        parts.append(Builder.slice_by_index(x=sizes, begin=[2], end=[x.rank]))
    split = Builder.reshape(x=x, shape=Builder.concat(values=parts, axis=0))
    axes = list(range(2, split.rank))
    centered = Builder.sub(x=split, y=Builder.reduce_mean(x=split, axes=axes, keep_dims=True))
    square = Builder.mul(x=centered, y=centered)
    variance = Builder.reduce_mean(x=square, axes=axes, keep_dims=True)
    number = types.nptype_from_builtin(x.dtype)
    deviation = Builder.sqrt(x=Builder.add(x=variance, y=number(epsilon)))
    result = Builder.reshape(x=Builder.real_div(x=centered, y=deviation), shape=sizes)
    for parameter, apply in ((weight, Builder.mul), (bias, Builder.add)):
        if parameter is not None:
            shaped = Builder.reshape(x=parameter, shape=[1, channels, *[1] * beyond])
            result = apply(x=result, y=shaped)
    return Builder.identity(x=result, name=name)


def adaptive_avg_pool2d(context: Any, node: Any) -> None:  # noqa: ANN401
    """Average over windows of an image's rows and columns, at any batch size.

    coremltools 9.0 requires a batch that is known, unless the result is one pixel. Means over rows
    and then over columns are two products with constant matrices.
    """
    from coremltools.converters.mil.mil import Builder, types

    x, sizes = arguments(context, node, ("input", "output_size"))
    number = types.nptype_from_builtin(x.dtype)
    rows, columns = (
        _windows(int(length), int(size)).astype(number)
        for length, size in zip(x.shape[-2:], value(sizes), strict=True)
    )
    result = Builder.matmul(x=Builder.matmul(x=rows, y=x), y=columns, transpose_y=True)
    context.add(Builder.identity(x=result, name=node.name))


def _windows(length: int, size: int) -> Any:  # noqa: ANN401
    """Return a matrix of [size, length] whose products are the means over torch's windows."""
    matrix = np.zeros((size, length))
    for place in range(size):
        first, last = place * length // size, -(-(place + 1) * length // size)
        matrix[place, first:last] = 1 / (last - first)
    return matrix


def with_states(own: Translation) -> Translation:
    """Return a translation of `lstm` that binds its outputs, whatever they are called."""
    return partial(_lstm, own)


def _lstm(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    if len(node.outputs) == len(_RESULTS):
        own(context, node)
        return
    several = copy.copy(node)
    several.outputs = [f"{node.name}_{each}" for each in _RESULTS]
    own(context, several)
    context.add(tuple(context[name] for name in several.outputs), torch_name=node.name)

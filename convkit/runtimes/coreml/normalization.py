"""Group normalization for coremltools' frontend, at any batch size.

coremltools 9.0 writes the batch's symbol into a constant shape, and fails unless the batch is
fixed.
"""

from typing import Any

from convkit.runtimes.coreml.arguments import arguments, value

_NAMES = ("input", "num_groups", "weight", "bias", "eps", "cudnn_enabled")
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

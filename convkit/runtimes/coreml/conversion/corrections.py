"""Translations that coremltools 9.0 silently gets wrong, each with a correct one. A correction
receives coremltools' own translation and passes to it all calls that it gets right, so the programs
of other models stay as they are.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from convkit.runtimes.coreml.conversion.frontend_arguments import (
    Translation,
    arguments,
    is_script,
    value,
)
from convkit.runtimes.coreml.conversion.size_arithmetic import rounded_size, squeeze, whole_number

# TorchScript's `var(x, unbiased)` has so many arguments; it may also be `var(x, dim, correction,
# keepdim)`.
_WHETHER_TO_CORRECT = 2
# From here on torch's softplus is the identity.
_DEFAULT_THRESHOLD = 20
# torch's numbers of element types that are floats (c10/core/ScalarType.h).
_TORCH_FLOATS = frozenset({5, 6, 7, 15})


def scaled_operand(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """`add`, `sub` and `rsub` with `alpha`, which torch.export passes by keyword and coremltools
    does not read: the second operand stays as it is.
    """
    from coremltools.converters.mil.frontend.torch.ops import promote_input_dtypes
    from coremltools.converters.mil.mil import Builder

    first, second, alpha = arguments(context, node, ("self", "other", "alpha"))
    if alpha is None or value(alpha) == 1:
        own(context, node)
        return
    if node.kind.startswith("rsub"):
        first, second = second, first
    scaled = Builder.mul(**dict(zip("xy", promote_input_dtypes([second, alpha]), strict=True)))
    x, y = promote_input_dtypes([first, scaled])
    combine = Builder.add if node.kind.startswith("add") else Builder.sub
    context.add(combine(x=x, y=y, name=node.name))


def unbiased(own: Translation, context: Any, node: Any, *, root: bool) -> None:  # noqa: ANN401
    """Variance, or its `root`, by N - 1 where no correction is given, as it is with `x.std()`:
    coremltools divides by N.
    """
    from coremltools.converters.mil.frontend.torch.ops import _var
    from coremltools.converters.mil.mil import Builder

    if is_script(context) and len(node.inputs) == _WHETHER_TO_CORRECT:
        own(context, node)
        return
    x, dim, correction, keepdim = arguments(context, node, ("self", "dim", "correction", "keepdim"))
    if value(correction) is not None:
        own(context, node)
        return
    result = _var(x, axes=_axes(dim), keep_dims=bool(value(keepdim)), unbiased=True)
    context.add(Builder.sqrt(x=result) if root else result, node.name)


def log_softmax(_: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`x - log(sum(exp(x)))`: coremltools takes the logarithm of a softmax, which has rounded to
    zero where x is 104 below the largest value, and in float16 where it is 17 below.
    """
    from coremltools.converters.mil.mil import Builder, types

    x, dim, _ = arguments(context, node, ("self", "dim", "dtype"))
    if not types.is_float(x.dtype):
        x = Builder.cast(x=x, dtype="fp32")
    axes = [int(value(dim))]
    below = Builder.sub(x=x, y=Builder.reduce_max(x=x, axes=axes, keep_dims=True))
    total = Builder.reduce_log_sum_exp(x=below, axes=axes, keep_dims=True)
    context.add(Builder.sub(x=below, y=total, name=node.name))


def softplus(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """Softplus with a low threshold, above which torch returns x itself; coremltools ignores it."""
    from coremltools.converters.mil.mil import Builder, types

    x, beta, threshold = arguments(context, node, ("self", "beta", "threshold"))
    if threshold is None or value(threshold) >= _DEFAULT_THRESHOLD:
        own(context, node)
        return
    number = types.nptype_from_builtin(x.dtype)
    steep = number(1 if beta is None else value(beta))
    scaled = Builder.mul(x=x, y=steep)
    bent = Builder.real_div(x=Builder.softplus(x=scaled), y=steep)
    is_straight = Builder.greater(x=scaled, y=number(value(threshold)))
    context.add(Builder.select(cond=is_straight, a=x, b=bent, name=node.name))


def mean(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """Mean of integers as a float: coremltools ignores the requested type and rounds down."""
    from coremltools.converters.mil.mil import Builder, types

    if is_script(context):  # `mean(x, dtype)` by position
        own(context, node)
        return
    x, dim, keepdim, _ = arguments(context, node, ("self", "dim", "keepdim", "dtype"))
    if types.is_float(x.dtype) or types.is_complex(x.dtype):
        own(context, node)
        return
    axes = _axes(dim)
    whole = Builder.cast(x=x, dtype="fp32")
    result = Builder.reduce_mean(x=whole, axes=axes, keep_dims=bool(value(keepdim)), name=node.name)
    context.add(result)


def total(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """Sum of bools as an integer, and of integers as a float if one is asked for: coremltools makes
    a float32 of the former and ignores the type.
    """
    from coremltools.converters.mil.mil import Builder, types

    if is_script(context):  # one name for `sum(x, dtype)` and `sum(x, dim, keepdim, dtype)`
        own(context, node)
        return
    whole = node.kind == "sum"
    names = ("self", "dtype") if whole else ("self", "dim", "keepdim", "dtype")
    x, *along, dtype = arguments(context, node, names)
    if types.is_float(x.dtype) or types.is_complex(x.dtype):
        own(context, node)
        return
    is_float = dtype is not None and int(value(dtype)) in _TORCH_FLOATS
    dim, keepdim = along or (None, None)
    given = Builder.cast(x=x, dtype="fp32" if is_float else "int32")
    result = Builder.reduce_sum(x=given, axes=_axes(dim), keep_dims=bool(value(keepdim)))
    context.add(result, node.name)


def running_total(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`cumsum` along an axis counted from the end: MIL takes -1 only of these."""
    from coremltools.converters.mil.mil import Builder, types

    x, dim, _ = arguments(context, node, ("self", "dim", "dtype"))
    if value(dim) >= -1 or not types.is_float(x.dtype):
        own(context, node)
        return
    context.add(Builder.cumsum(x=x, axis=int(value(dim)) + x.rank, name=node.name))


def place_among_all(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`argmax` and `argmin` without an axis: coremltools takes the last axis."""
    from coremltools.converters.mil.mil import Builder

    x, dim, keepdim = arguments(context, node, ("self", "dim", "keepdim"))
    if value(dim) is not None or not x.rank:
        own(context, node)
        return
    place = Builder.reduce_argmax if node.kind == "argmax" else Builder.reduce_argmin
    found = place(x=Builder.reshape(x=x, shape=(-1,)), axis=0, keep_dims=bool(value(keepdim)))
    if value(keepdim):
        found = Builder.reshape(x=found, shape=(1,) * x.rank)
    context.add(found, node.name)


def _axes(dim: Any) -> list[int] | None:  # noqa: ANN401
    """Return a reduction's axes; None for all."""
    given = value(dim)
    dims = [] if given is None else torch.tensor(given).reshape(-1).tolist()
    return [int(each) for each in dims] or None


def masked_index(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`x[mask, index]`, of which coremltools ignores the index: a mask is the same as the places of
    its true elements.
    """
    from coremltools.converters.mil.mil import Builder, types

    x, names = node.inputs[0], node.inputs[1]
    given = context[names] if isinstance(names, str) else [each and context[each] for each in names]
    masks = [each is not None and types.is_bool(each.dtype) for each in given]
    if sum(masks) != 1 or sum(each is not None for each in given) == 1:
        own(context, node)
        return
    places: list[Any] = []
    for each, is_mask in zip(given, masks, strict=True):
        if not is_mask:
            places.append(each)
            continue
        found = Builder.non_zero(x=each)
        places += [
            Builder.gather(x=found, indices=np.int32(axis), axis=1) for axis in range(each.rank)
        ]
    if isinstance(names, str):
        whole: Any = f"{node.name}_places"
        context.add(places, whole)
    else:
        whole = tuple(
            None if each is None else f"{node.name}_place_{axis}"
            for axis, each in enumerate(places)
        )
        for name, each in zip(whole, places, strict=True):
            if name is not None:
                context.add(each, name)
    node.inputs = [x, whole, *node.inputs[2:]]
    own(context, node)


def triangle(own: Translation, context: Any, node: Any, *, upper: bool) -> None:  # noqa: ANN401
    """`triu` from above the diagonal and `tril` from below it: coremltools subtracts the other
    part, and a mask of the future, which is minus infinity there, less itself is NaN.
    """
    from coremltools.converters.mil.mil import Builder, types

    x, given = arguments(context, node, ("self", "diagonal"))
    diagonal = 0 if given is None else value(given)
    if diagonal is None or not types.is_float(x.dtype):
        own(context, node)
        return
    if not (diagonal > 0 if upper else diagonal < 0):
        own(context, node)
        return
    ones = Builder.fill(shape=Builder.shape(x=x), value=1.0)
    lower, above = (-1, int(diagonal) - 1) if upper else (-int(diagonal) - 1, -1)
    others = Builder.band_part(x=ones, lower=lower, upper=above)
    zero = types.nptype_from_builtin(x.dtype)(0)
    kept = Builder.equal(x=others, y=0.0)
    context.add(Builder.select(cond=kept, a=x, b=zero, name=node.name))


def angle(_: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`atan2`: coremltools returns 0 in place of pi for y = 0 and x < 0, and moves x by 2e-8 near
    zero.
    """
    from coremltools.converters.mil.frontend.torch.ops import promote_input_dtypes
    from coremltools.converters.mil.mil import Builder, types

    y, x = promote_input_dtypes(
        [
            each if types.is_float(each.dtype) else Builder.cast(x=each, dtype="fp32")
            for each in arguments(context, node, ("self", "other"))
        ]
    )
    number = types.nptype_from_builtin(x.dtype)
    zero, half = number(0), number(math.pi / 2)
    is_upright = Builder.equal(x=x, y=zero)
    divisor = Builder.select(cond=is_upright, a=number(1), b=x)
    slope = Builder.atan(x=Builder.real_div(x=y, y=divisor))
    below = Builder.less(x=y, y=zero)
    left, other = (Builder.add(x=slope, y=number(turn)) for turn in (-math.pi, math.pi))
    turned = Builder.select(cond=below, a=left, b=other)
    right = Builder.select(cond=Builder.less(x=x, y=zero), a=turned, b=slope)
    upright = Builder.mul(x=Builder.sign(x=y), y=half)
    context.add(Builder.select(cond=is_upright, a=upright, b=right, name=node.name))


def logarithm(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`log` of floats: coremltools adds 1.4e-45, so the logarithm of 0 is -103 in place of minus
    infinity.
    """
    from coremltools.converters.mil.mil import Builder, types

    (x,) = arguments(context, node, ("self",))
    if not types.is_float(x.dtype):
        own(context, node)
        return
    zero = types.nptype_from_builtin(x.dtype)(0)
    context.add(Builder.log(x=x, epsilon=zero, name=node.name))


def whole_quotient(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`floor_divide` of integers, which is an integer: coremltools makes it a float32."""
    from coremltools.converters.mil.mil import Builder, types

    x, y = arguments(context, node, ("self", "other"))
    if types.is_int(x.dtype) and types.is_int(y.dtype):
        context.add(Builder.floor_div(x=x, y=y, name=node.name))
    else:
        own(context, node)


def rounded_quotient(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`div` of integers with a rounding mode, which is an integer: coremltools divides in float32,
    which has no odd numbers above 2^24.
    """
    from coremltools.converters.mil.mil import Builder, types

    x, y, mode = arguments(context, node, ("self", "other", "rounding_mode"))
    rounding = value(mode) if mode is not None else None
    if rounding is None or not (types.is_int(x.dtype) and types.is_int(y.dtype)):
        own(context, node)
        return
    floor = Builder.floor_div(x=x, y=y)
    if rounding == "trunc":  # one more than the floor, below zero and with a remainder
        is_rounded = Builder.not_equal(x=Builder.mul(x=floor, y=y), y=x)
        is_low = Builder.logical_and(x=is_rounded, y=Builder.less(x=floor, y=0))
        floor = Builder.add(x=floor, y=Builder.cast(x=is_low, dtype="int32"))
    context.add(floor, node.name)


def clamped(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`clamp` with one bound, or of integers: coremltools takes float32's largest number for the
    other bound, which makes integers floats, and float16 cannot hold.
    """
    from coremltools.converters.mil.frontend.torch.ops import promote_input_dtypes
    from coremltools.converters.mil.mil import Builder, types

    x, low, high = arguments(context, node, ("self", "min", "max"))
    steps = [
        (combine, bound)
        for combine, bound in ((Builder.maximum, low), (Builder.minimum, high))
        if bound is not None
    ]
    if not steps or (len(steps) > 1 and types.is_float(x.dtype)):
        own(context, node)
        return
    for combine, bound in steps:
        x = combine(**dict(zip("xy", promote_input_dtypes([x, bound]), strict=True)))
    context.add(x, node.name)


def tracked_normalization(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`instance_norm` by statistics that were tracked in training, which coremltools takes from the
    input all the same.
    """
    from coremltools.converters.mil.mil import Builder

    names = ("input", "weight", "bias", "running_mean", "running_var", "use_input_stats")
    more = ("momentum", "eps", "cudnn_enabled")
    x, weight, bias, mean, variance, from_input, _, epsilon, _ = arguments(
        context, node, (*names, *more)
    )
    if mean is None or from_input is None or bool(value(from_input)):
        own(context, node)
        return
    given = {"gamma": weight, "beta": bias} if weight is not None else {}
    context.add(
        Builder.batch_norm(
            x=x, mean=mean, variance=variance, epsilon=value(epsilon), name=node.name, **given
        )
    )


# What coremltools translates wrong, by its name for the operator.
CORRECTIONS: dict[str, Callable[[Translation, Any, Any], None]] = {
    "add": scaled_operand,
    "sub": scaled_operand,
    "rsub": scaled_operand,
    "std": partial(unbiased, root=True),  # TorchScript's name of the same
    "var": partial(unbiased, root=False),
    "std.correction": partial(unbiased, root=True),
    "var.correction": partial(unbiased, root=False),
    "log_softmax": log_softmax,
    "_log_softmax": log_softmax,
    "softplus": softplus,
    "instance_norm": tracked_normalization,
    "clamp": clamped,
    "clip": clamped,
    "atan2": angle,
    "log": logarithm,
    "floor_divide": whole_quotient,
    "floordiv": whole_quotient,
    "div": rounded_quotient,
    "triu": partial(triangle, upper=True),
    "tril": partial(triangle, upper=False),
    "mean": mean,
    "mean.dim": mean,
    "sum": total,
    "cumsum": running_total,
    "argmax": place_among_all,
    "argmin": place_among_all,
    "ceil": rounded_size,
    "floor": rounded_size,
    "sum.dim_intlist": total,
    "int": whole_number,
    "squeeze": squeeze,
    "squeeze.dim": squeeze,
    "squeeze.dims": squeeze,
    "index": masked_index,
    "index.tensor": masked_index,
}

# coremltools' own translations, by name, once `correct` has replaced them.
OWN: dict[str, Translation] = {}


def correct(known: dict[str, Translation]) -> None:
    """Put the corrections into coremltools' registry; again changes nothing."""
    for name, correction in CORRECTIONS.items():
        if name not in OWN:
            OWN[name] = known.get(name, _missing)
            known[name] = partial(correction, OWN[name])


def _missing(_: Any, node: Any) -> None:  # noqa: ANN401
    raise NotImplementedError(f"no translation of {node.kind}")

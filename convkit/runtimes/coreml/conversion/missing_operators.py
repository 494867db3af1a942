"""Operators of torch that coremltools 9.0 lacks and that transformers' models use, taught to its
frontend.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.fx import Node

from convkit.runtimes.coreml.conversion.attention import scaled_dot_product_attention
from convkit.runtimes.coreml.conversion.control_flow import branch, loop
from convkit.runtimes.coreml.conversion.corrections import correct
from convkit.runtimes.coreml.conversion.frontend_arguments import Translation, translation, value
from convkit.runtimes.coreml.conversion.layer_translations import (
    adaptive_avg_pool2d,
    group_norm,
    native_group_norm,
    rms_norm,
    with_states,
)
from convkit.runtimes.coreml.conversion.refused_arguments import is_refused
from convkit.runtimes.coreml.conversion.scatters import scatter_translations
from convkit.runtimes.coreml.conversion.size_arithmetic import size_operators
from convkit.worker.mil.coremltools_import import accept_varying_axes
from convkit.worker.mil.narrow_operands import accept_narrow_operands

# torch's numbers of element types (c10/core/ScalarType.h), which is how coremltools hands a dtype
# on.
_TORCH_BOOL, _TORCH_HALF = 11, 5
_TORCH_WHOLE = frozenset({0, 1, 2, 3, 4})

# Quotients that round down, and remainders.
_DIVIDED = frozenset(
    {
        *("aten::floor_divide", "aten::floor_divide.Scalar"),
        *("aten::div.Tensor_mode", "aten::div.Scalar_mode"),
        *("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor"),
    }
)
# Resizings that `decompositions` writes out for sizes that are computed.
_RESIZED = frozenset(
    {
        "aten::upsample_nearest1d.vec",
        "aten::upsample_nearest2d.vec",
        "aten::upsample_linear1d.vec",
        "aten::upsample_bilinear2d.vec",
    }
)
# Python's operators on tensors, and the operators that they are.
_SYNONYMS = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor"}
# Bits of an integer without its sign, and the sign's value.
_BITS = np.left_shift(1, np.arange(31)).astype(np.int32)
_SIGN = np.int32(-(2**31))

# A pooling's inputs without its stride: the tensor and the window.
_WINDOW_ONLY = 2
# Translated to operations that ML programs have not, or to another operator's.
_HOLLOW = ("acosh", "asinh", "diagonal", "diagonal_copy", "logcumsumexp")
_MAX_POOLS = tuple(f"max_pool{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_with_indices"))


def register_missing_operators() -> None:
    """Register them for this process, if coremltools lacks them or implements them incorrectly."""
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    known = _TORCH_OPS_REGISTRY.name_to_func_mapping
    for name in ("where", "where.self", "where.scalarself"):
        known[name] = where  # coremltools' own returns the wrong shape for variable sizes
    known["gelu"] = gelu  # coremltools' own ignores the requested approximation
    known["scaled_dot_product_attention"] = scaled_dot_product_attention  # see `attention`
    known["group_norm"] = group_norm  # its own refuses a batch that varies
    known["native_group_norm"] = native_group_norm
    known["rms_norm"] = rms_norm
    known["reciprocal"] = exact("inverse")  # its own adds 1e-4 to the divisor
    known["rsqrt"] = exact("rsqrt")  # its own adds 1e-12
    known["_adaptive_avg_pool2d"] = adaptive_avg_pool2d
    # Its own ignore the element type that is asked for: zeros like a mask were bools.
    for name, number in (("zeros_like", 0), ("ones_like", 1), ("full_like", None)):
        known[name] = like(number, known[name])
    known["lstm.input"] = with_states(known["lstm"])  # as torch.export calls it
    known["index_put"] = with_equal_indices(known["index_put"])
    for name in _HOLLOW:
        known.pop(name, None)
    for name in _MAX_POOLS:
        if name in known:
            known[name] = with_stride(known[name])
    # Its own leaves copies out: an output that copies an input was called as that input is.
    known["clone"] = ALIAS
    correct(known)
    known.update({"cond": branch, "while_loop": loop, **scatter_translations()})
    accept_varying_axes()  # coremltools may have been imported otherwise
    accept_narrow_operands()
    for name, own in (
        *(("alias", ALIAS), ("new_ones", new_ones)),
        *(("prod", product), ("prod.dim_int", product)),
    ):
        known.setdefault(name, own)
    for name in ("and", "or", "xor"):  # its own are those of bools, whatever they are given
        known[f"bitwise_{name}"] = bitwise(name)
    for name, other in _SYNONYMS.items():
        if name not in known:
            known[name] = known[other]
    for name, own in size_operators().items():
        known.setdefault(name, own)


def is_known(node: Any) -> bool:  # noqa: ANN401 - a torch.fx Node
    """Return True if coremltools can translate a node's operator."""
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY
    from coremltools.converters.mil.frontend.torch.utils import sanitize_op_kind

    name = (
        node.target.name()
        if hasattr(node.target, "name")
        else getattr(node.target, "__name__", str(node.target))
    )
    if sanitize_op_kind(name) not in _TORCH_OPS_REGISTRY.name_to_func_mapping:
        return False
    if is_refused(node):
        return False
    if name in _DIVIDED and _rounds_a_fraction(node):
        return False
    if name in _RESIZED and _follows_a_size(node.args[1]):
        return False
    return name != "aten::einsum" or _is_plain(node.args[0])


def _rounds_a_fraction(node: Any) -> bool:  # noqa: ANN401 - a torch.fx Node
    """Return True for a float's quotient that is rounded down, and for its remainder: Core ML
    divides and rounds, which is one off near whole quotients.
    """
    mode = node.kwargs.get("rounding_mode", "floor")
    kind = node.meta["val"].dtype if "val" in node.meta else None
    return mode == "floor" and kind is not None and kind.is_floating_point


def _follows_a_size(sizes: Any) -> bool:  # noqa: ANN401 - of a torch.fx Node
    """Return True if an image takes a size that is computed: coremltools resizes by factors."""
    return isinstance(sizes, list | tuple) and any(isinstance(each, Node) for each in sizes)


def _is_plain(equation: str) -> bool:
    """Return True if coremltools reads an equation rightly: it takes the points of an ellipsis for
    names of axes, sums what is left of the result away, and leaves an axis that occurs twice as it
    is.
    """
    terms = equation.replace(" ", "").replace("->", ",").split(",")
    return "->" in equation and all(
        "." not in term and len(set(term)) == len(term) for term in terms
    )


# Renames a tensor: a copy, or what decompositions leave for views that change nothing.
ALIAS = translation(lambda mb, name, x, *_: mb.identity(x=x, name=name))


def exact(operation: str) -> Translation:
    """Translate to an operation of ML programs whose epsilon is zero: torch adds none."""

    def write(mb: Any, name: str, x: Any) -> Any:  # noqa: ANN401 - coremltools has no types
        from coremltools.converters.mil.mil import types

        return getattr(mb, operation)(x=x, epsilon=types.nptype_from_builtin(x.dtype)(0), name=name)

    return translation(write)


def new_ones(context: Any, node: Any) -> None:  # noqa: ANN401
    """Fill a tensor with ones, by default in another one's element type."""
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs, _get_kwinputs
    from coremltools.converters.mil.mil import Builder

    like, sizes, *positional = _get_inputs(context, node)
    (kind,) = _get_kwinputs(context, node, "dtype", default=[positional[0] if positional else None])
    one = _typed(1.0, None if kind is None else int(value(kind)), like.dtype)
    if _is_empty(sizes):
        context.add(Builder.const(val=one, name=node.name))
    else:
        context.add(Builder.fill(shape=_shape(sizes), value=one, name=node.name))


def bitwise(how: str) -> Translation:
    """Translate `and`, `or` and `xor` of bools, or of the bits of integers: ML programs have only
    the former.
    """

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.frontend.torch.ops import _get_inputs, promote_input_dtypes
        from coremltools.converters.mil.mil import Builder, types

        x, y = promote_input_dtypes(_get_inputs(context, node))
        if types.is_bool(x.dtype):
            context.add(getattr(Builder, f"logical_{how}")(x=x, y=y, name=node.name))
            return

        def combined(one: Any, other: Any) -> Any:  # noqa: ANN401
            if how == "xor":
                return Builder.abs(x=Builder.sub(x=one, y=other))
            return {"and": Builder.minimum, "or": Builder.maximum}[how](x=one, y=other)

        def bits(each: Any) -> Any:  # noqa: ANN401
            wide = Builder.expand_dims(x=each, axes=[-1]) if each.rank else each
            return Builder.mod(x=Builder.floor_div(x=wide, y=_BITS), y=np.int32(2))

        def sign(each: Any) -> Any:  # noqa: ANN401
            return Builder.cast(x=Builder.less(x=each, y=np.int32(0)), dtype="int32")

        given = [Builder.cast(x=each, dtype="int32") for each in (x, y)]
        magnitude = Builder.mul(x=combined(*map(bits, given)), y=_BITS)
        total = Builder.reduce_sum(x=magnitude, axes=[-1], keep_dims=False)
        signs = Builder.mul(x=combined(*map(sign, given)), y=_SIGN)
        context.add(Builder.add(x=total, y=signs, name=node.name))

    return translated


def product(context: Any, node: Any) -> None:  # noqa: ANN401
    """The product of a tensor's elements, or of those along an axis."""
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs
    from coremltools.converters.mil.mil import Builder

    x, *along = _get_inputs(context, node)
    is_along = "dim" in node.kind and bool(along)
    axes = [int(value(along[0]))] if is_along else None
    keeps = is_along and len(along) > 1 and bool(value(along[1]))
    context.add(Builder.reduce_prod(x=x, axes=axes, keep_dims=keeps, name=node.name))


def _typed(number: float, wanted: int | None, usual: Any) -> bool | int | float:  # noqa: ANN401
    """Return a number of torch's element type `wanted`, or without one of coremltools' `usual`."""
    from coremltools.converters.mil.mil import types

    if wanted == _TORCH_BOOL or (wanted is None and usual == types.bool):
        return bool(number)
    if wanted in _TORCH_WHOLE or (wanted is None and types.is_int(usual)):
        return int(number)
    return number


def like(number: int | None, own: Translation) -> Translation:
    """Translate to a tensor of another's size, filled with a number (None: with that given), by
    default in the other's element type. A number that is only known at run time, such as a size, is
    added: coremltools' `own` fills with zeros.
    """
    if getattr(own, "has_type", False):
        return own

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.frontend.torch.ops import _get_inputs, _get_kwinputs
        from coremltools.converters.mil.mil import Builder, types

        tensor, *positional = _get_inputs(context, node)
        given = positional.pop(0) if number is None else None
        filled = number if given is None else value(given)
        (kind,) = _get_kwinputs(
            context, node, "dtype", default=[positional[0] if positional else None]
        )
        wanted = None if kind is None else int(value(kind))
        typed: Any = _typed(float(filled or 0), wanted, tensor.dtype)
        if wanted == _TORCH_HALF or (wanted is None and tensor.dtype == types.fp16):
            typed = np.float16(typed)
        name = {"name": node.name} if filled is not None else {}
        if tensor.rank == 0:
            whole = Builder.const(val=typed, **name)
        else:
            whole = Builder.fill(shape=Builder.shape(x=tensor), value=typed, **name)
        if filled is None:
            added = Builder.cast(x=given, dtype=types.builtin_to_string(whole.dtype))
            join = Builder.logical_or if types.is_bool(whole.dtype) else Builder.add
            whole = join(x=whole, y=added, name=node.name)
        context.add(whole)

    translated.has_type = True  # type: ignore[attr-defined]  # registering twice changes nothing
    return translated


def with_equal_indices(own: Translation) -> Translation:
    """Return the translation of `index_put` that repeats indices of size 1, as torch does:
    coremltools refuses indices of different shapes.
    """
    if getattr(own, "has_equal", False):
        return own

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.mil import Builder, types

        names = node.inputs[1]
        given = [context[each] for each in names if each] if isinstance(names, tuple) else []
        if len({str(each.shape) for each in given}) > 1 and all(
            types.is_int(each.dtype) for each in given
        ):
            zeros = None
            for each in given:
                zero = Builder.mul(x=each, y=0)
                zeros = zero if zeros is None else Builder.add(x=zeros, y=zero)
            repeated = []
            for place, each in enumerate(names):
                repeated.append(each and f"{node.name}_index_{place}")
                if each:
                    whole = Builder.add(x=context[each], y=zeros, name=repeated[-1])
                    context.add(whole)
            node.inputs = [node.inputs[0], tuple(repeated), *node.inputs[2:]]
        own(context, node)

    translated.has_equal = True  # type: ignore[attr-defined]  # registering twice changes nothing
    return translated


def with_stride(translate: Translation) -> Translation:
    """Return a pooling's translation that has a stride, as coremltools 9.0 requires: torch.export
    leaves out what is the default, the size of the window.
    """
    if getattr(translate, "has_stride", False):
        return translate

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401
        if len(node.inputs) == _WINDOW_ONLY:
            node.inputs = [*node.inputs, node.inputs[1]]
        translate(context, node)

    translated.has_stride = True  # type: ignore[attr-defined]  # registering twice changes nothing
    return translated


def gelu(context: Any, node: Any) -> None:  # noqa: ANN401
    """Gaussian error linear unit, exact or approximated.

    torch.export hands the approximation over by keyword, which coremltools 9.0 does not read:
    SigLIP and Gemma 3 then differ by 5e-4 without notice.
    """
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs, _get_kwinputs
    from coremltools.converters.mil.mil import Builder

    x, *positional = _get_inputs(context, node)
    (wanted,) = _get_kwinputs(
        context, node, "approximate", default=[positional[0] if positional else "none"]
    )
    mode = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}[str(value(wanted))]
    context.add(Builder.gelu(x=x, mode=mode, name=node.name))


def where(context: Any, node: Any) -> None:  # noqa: ANN401
    """Select between two tensors.

    coremltools 9.0 infers the shape of a `select` from the two alone, so selecting between two
    scalars counts as a scalar, whatever the condition's shape. If that may be wrong, one of them is
    broadcast to the condition.
    """
    from coremltools.converters.mil.frontend.torch.ops import (
        _get_inputs,
        _nonzero_as_tuple,
        promote_input_dtypes,
    )
    from coremltools.converters.mil.mil import Builder, types

    inputs = _get_inputs(context, node)
    if len(inputs) == 1:
        _nonzero_as_tuple(context, node, inputs[0])
        return
    condition, one, other = inputs
    one, other = promote_input_dtypes([one, other])
    if not types.is_bool(condition.dtype):
        condition = Builder.cast(x=condition, dtype="bool")
    if all(tuple(condition.shape) != tuple(each.shape) for each in (one, other)):
        one = _spread(one, condition)
    context.add(Builder.select(cond=condition, a=one, b=other, name=node.name))


def _spread(tensor: Any, condition: Any) -> Any:  # noqa: ANN401
    """Return a tensor broadcast against a condition."""
    from coremltools.converters.mil.mil import Builder, types

    if types.is_bool(tensor.dtype):
        return Builder.logical_or(x=tensor, y=Builder.logical_and(x=condition, y=False))
    kind = types.builtin_to_string(tensor.dtype)
    zeros = Builder.mul(
        x=Builder.cast(x=condition, dtype=kind), y=types.nptype_from_builtin(tensor.dtype)(0)
    )
    return Builder.add(x=tensor, y=zeros)


def _is_empty(sizes: Any) -> bool:  # noqa: ANN401
    """Return True if a shape is a scalar's: coremltools passes an empty list as an empty tensor of
    floats.
    """
    return len(sizes) == 0 if isinstance(sizes, Sequence) else getattr(sizes, "shape", None) == (0,)


def _shape(sizes: Any) -> Any:  # noqa: ANN401
    """Return a shape in coremltools' form: integers, or a tensor if a size is only known at run
    time.
    """
    from coremltools.converters.mil.mil import Builder

    if not isinstance(sizes, Sequence):
        return sizes
    values = [value(size) for size in sizes]
    if all(each is not None for each in values):
        return [int(each) for each in values]
    parts = [size if hasattr(size, "val") else Builder.const(val=int(size)) for size in sizes]
    return Builder.concat(values=[Builder.expand_dims(x=part, axes=[0]) for part in parts], axis=0)

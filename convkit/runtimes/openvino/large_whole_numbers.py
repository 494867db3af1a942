"""Arithmetic of whole numbers that OpenVINO 2026.4 computes in float32 on the CPU, which holds them
exactly up to 2**24 only: divisions, remainders and comparisons. Its sums, differences and products
are those of int32.

A quotient is divided again by what it leaves over. Numbers that are equal in float32 are compared
by their difference, which is then small.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.runtimes.openvino.sequence_lengths import depends_on_values

if TYPE_CHECKING:
    import openvino

# float32 has every whole number up to here.
_EXACT = 2**24
# After two divisions, what is left over is less than twice the divisor; the third one is exact.
_ROUNDS = 3
_WHOLE = frozenset({"i32", "i64", "u32", "u64"})
_SHORT = frozenset({"boolean", "i8", "i16", "u8", "u16"})
# What only moves or repeats the values of its first input.
_MOVING = frozenset({"Broadcast", "Gather", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"})


def keep_whole_numbers_exact(model: "openvino.Model") -> int:
    """Rewrite what may take larger numbers than float32 holds; return how many nodes there were.
    Sizes, and comparisons with a small number, are exact as they are.
    """
    found = 0
    for node in model.get_ordered_ops():
        rewritten = _REWRITTEN.get(node.get_type_name())
        if rewritten is not None and _may_be_large(node):
            _replace(node, rewritten(node, *node.input_values()))
            found += 1
    return found


def _may_be_large(node: "openvino.Node") -> bool:
    values = [value.get_node() for value in node.input_values()]
    if node.get_type_name() in _REDUCTIONS:
        axes = values.pop()
        if axes.get_type_name() != "Constant" or node.get_input_partial_shape(0).rank.is_dynamic:
            return False  # along axes that are computed
    kinds = {node.input_value(place).get_element_type() for place in range(len(values))}
    if not {kind.get_type_name() for kind in kinds} <= _WHOLE or not any(
        map(depends_on_values, values)
    ):
        return False
    small = [_is_small(each) for each in values]
    return not (any(small) if node.get_type_name() in _FUNCTIONS else small[0])


def _is_small(node: "openvino.Node") -> bool:
    """Return True if float32 is known to hold every value: those of booleans and short types, and
    small constants.
    """
    while node.get_type_name() in _MOVING:
        node = node.input_value(0).get_node()
    if node.get_type_name() == "Constant":
        return bool((np.abs(node.data) < _EXACT).all())
    kind = node.input_value(0) if node.get_type_name() == "Convert" else node.output(0)
    return kind.get_element_type().get_type_name() in _SHORT


def _divided(one: Any, other: Any) -> tuple[Any, Any]:  # noqa: ANN401 - OpenVINO's outputs
    """Return the quotient, rounded towards zero, and what is left over."""
    from openvino import opset13 as ops

    quotient, rest = None, one
    for _ in range(_ROUNDS):
        part = ops.divide(rest, other)
        quotient = part if quotient is None else ops.add(quotient, part)
        rest = ops.subtract(rest, ops.multiply(part, other))
    # One step too many leaves a rest of the other sign.
    over = _has_other_sign(rest, one)
    back = ops.multiply(_has_other_sign(rest, other), _number(2, one))
    step = ops.multiply(over, ops.subtract(_number(1, one), back))
    return ops.add(quotient, step), ops.subtract(rest, ops.multiply(step, other))


def _quotient(_: "openvino.Node", one: Any, other: Any) -> Any:  # noqa: ANN401
    return _divided(one, other)[0]


def _rest(_: "openvino.Node", one: Any, other: Any) -> Any:  # noqa: ANN401
    return _divided(one, other)[1]


def _floored_rest(_: "openvino.Node", one: Any, other: Any) -> Any:  # noqa: ANN401
    """The remainder with the divisor's sign."""
    from openvino import opset13 as ops

    rest = _divided(one, other)[1]
    return ops.add(rest, ops.multiply(_has_other_sign(rest, other), other))


def _has_other_sign(rest: Any, other: Any) -> Any:  # noqa: ANN401
    """Return 1 where a rest has another sign than a number, 0 where it has the same or is zero."""
    from openvino import opset13 as ops

    zero = _zero(rest)
    differ = ops.logical_xor(ops.less(rest, zero), ops.less(other, zero))
    return ops.convert_like(ops.logical_and(ops.not_equal(rest, zero), differ), rest)


def _extreme(mode: str) -> Callable[..., Any]:
    """Return how the largest or smallest numbers along axes are found: as the first of an order,
    which is exact.
    """

    def first(values: Any, axis: int) -> Any:  # noqa: ANN401
        from openvino import opset13 as ops

        return ops.topk(values, np.int64(1), axis, mode, "none").output(0)

    return _along(first)


def _last_sum(values: Any, axis: int) -> Any:  # noqa: ANN401
    """The last of the running sums, which are exact."""
    from openvino import opset13 as ops

    sums = ops.cum_sum(values, np.int64(axis))
    return ops.gather(sums, np.array([-1], np.int64), np.int64(axis))


def _along(step: Callable[[Any, int], Any]) -> Callable[..., Any]:
    """Return what reduces one axis after the other, each to one element."""

    def reduced(node: "openvino.Node", values: Any, given: Any) -> Any:  # noqa: ANN401
        from openvino import opset13 as ops

        rank = len(values.get_partial_shape())
        axes = sorted({int(axis) % rank for axis in given.get_node().data.ravel()})
        for axis in axes:
            values = step(values, axis)
        if not axes or node.get_attributes()["keep_dims"]:
            return ops.multiply(values, _number(1, values))
        return ops.squeeze(values, np.array(axes, np.int64))

    return reduced


def _compared(strictly: str) -> Callable[["openvino.Node", Any, Any], Any]:
    """Return how numbers are compared: `strictly` decides where they differ in float32."""

    def compared(node: "openvino.Node", one: Any, other: Any) -> Any:  # noqa: ANN401
        from openvino import opset13 as ops

        kind = _FUNCTIONS[node.get_type_name()]
        by_difference = getattr(ops, kind)(ops.subtract(one, other), _zero(one))
        are_near = ops.logical_and(ops.equal(one, other), by_difference)
        if not strictly:
            return are_near
        return ops.logical_or(getattr(ops, strictly)(one, other), are_near)

    return compared


_FUNCTIONS = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "NotEqual": "not_equal",
}
_DIVISIONS = {"Divide": _quotient, "FloorMod": _floored_rest, "Mod": _rest}
_REDUCTIONS = {
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceSum": _along(_last_sum),
}
_REWRITTEN: dict[str, Callable[..., Any]] = {
    **_DIVISIONS,
    **_REDUCTIONS,
    "Equal": _compared(""),
    "Greater": _compared("greater"),
    "GreaterEqual": _compared("greater"),
    "Less": _compared("less"),
    "LessEqual": _compared("less"),
    "NotEqual": _compared("not_equal"),
}


def _zero(like: Any) -> Any:  # noqa: ANN401
    return _number(0, like)


def _number(number: int, like: Any) -> Any:  # noqa: ANN401
    from openvino import opset13 as ops

    return ops.constant(np.int64(number), dtype=like.get_element_type())


def _replace(node: "openvino.Node", new: "openvino.Node") -> None:
    """Let a node's readers read another, which gets its names."""
    old = node.output(0)
    names = old.get_tensor().get_names()
    new.set_friendly_name(node.get_friendly_name())
    for reader in list(old.get_target_inputs()):
        if reader.get_node() is not new:
            reader.replace_source_output(new.output(0))
    old.get_tensor().set_names(set())
    new.output(0).get_tensor().set_names(names)

"""Arithmetic on open sizes, in those operators on numbers that every converter translates as Python
computes them.

torch's ONNX exporter divides whole numbers towards zero, where Python rounds down: `-(-size // 8)`
would be a size too small. It has no `round()`, no remainder of fractions and no shifts of bits.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch.fx import Node

# Both are numbers, or nodes of them.
_Number: TypeAlias = Node | int | float
_Call: TypeAlias = Callable[..., Any]


def plain_arithmetic(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program, changed in place, with such operators alone where it computes sizes."""
    graph = program.graph
    for node in [*graph.nodes]:
        rewrite = _REWRITTEN.get(node.target) if node.op == "call_function" else None
        if rewrite is None:
            continue
        with graph.inserting_before(node):
            found = rewrite(_caller(node), *node.args)
        if found is not None:
            node.replace_all_uses_with(found)
            graph.erase_node(node)
    program.graph_module.recompile()
    return program


def _caller(origin: Node) -> _Call:
    """Return a function that adds a call to the graph, as a part of what a node computes."""

    def call(target: Callable[..., Any], *given: _Number) -> Node:
        node = origin.graph.call_function(target, given)
        node.meta = {**origin.meta, "val": target(*map(_value, given))}
        return node

    return call


def _value(given: _Number) -> Any:  # noqa: ANN401 - a number, open or not
    return given.meta["val"] if isinstance(given, Node) else given


def _is_whole(*given: _Number) -> bool:
    return all(isinstance(_value(each), int | torch.SymInt) for each in given)


def _is_negative(given: _Number) -> bool:
    """Say whether a whole number may be below zero."""
    value = _value(given)
    if isinstance(value, int):
        return value < 0
    return not value.node.shape_env.bound_sympy(value.node.expr).lower >= 0


def _quotient(call: _Call, one: _Number, other: _Number) -> object:
    if not _is_whole(one, other) or not (_is_negative(one) or _is_negative(other)):
        return None
    # Without a remainder, rounding makes no difference.
    return call(operator.floordiv, call(operator.sub, one, call(operator.mod, one, other)), other)


def _remainder(call: _Call, one: _Number, other: _Number) -> object:
    if _is_whole(one, other):
        return None
    whole = call(math.floor, call(operator.truediv, one, other))
    return call(operator.sub, one, call(operator.mul, call(torch.sym_float, whole), other))


def _rounded(call: _Call, number: _Number, digits: int | None = None) -> object:
    if _is_whole(number):
        return number
    if digits is None:
        return _nearest(call, number)
    scaled = call(operator.mul, number, 10.0**digits)
    return call(operator.truediv, _nearest(call, scaled), 10.0**digits)


def _nearest(call: _Call, number: Any) -> Any:  # noqa: ANN401 - a number, as `call` takes it
    """Return the nearest whole number; of two that are equally near, the even one.

    These two are `above` and `below`, which are the same elsewhere.
    """
    above = call(math.floor, call(operator.add, number, 0.5))
    below = call(math.ceil, call(operator.sub, number, 0.5))
    is_even = call(operator.sub, 1, call(operator.mod, above, 2))
    return call(operator.add, below, call(operator.mul, call(operator.sub, above, below), is_even))


def _shifted_left(call: _Call, number: _Number, bits: _Number) -> object:
    return call(operator.mul, number, 2**bits) if isinstance(bits, int) else None


def _shifted_right(call: _Call, number: _Number, bits: _Number) -> object:
    if not isinstance(bits, int):
        return None
    return _quotient(call, number, 2**bits) or call(operator.floordiv, number, 2**bits)


def _low_bits(call: _Call, one: _Number, other: _Number) -> object:
    """Return a number's lowest bits: what a power of two leaves of it."""
    number, mask = (other, one) if isinstance(one, int) else (one, other)
    is_of_low_bits = type(mask) is int and mask > 0 and mask & (mask + 1) == 0
    return call(operator.mod, number, mask + 1) if is_of_low_bits and _is_whole(number) else None


_REWRITTEN: Mapping[Any, Callable[..., object]] = {
    operator.floordiv: _quotient,
    operator.mod: _remainder,
    round: _rounded,
    operator.lshift: _shifted_left,
    operator.rshift: _shifted_right,
    operator.and_: _low_bits,
}


def nearest(number: Any) -> Any:  # noqa: ANN401 - a fraction of a size
    """`round(number)` of an open number in the operators above: of torch's own, it cannot say how
    it compares with other sizes.
    """
    return _nearest(lambda target, *given: target(*given), number)

"""Operators of ONNX that OpenVINO 2026.4 translates wrong without a word, each translated right.

`ReduceL1`, `ReduceLogSum` and `ReduceLogSumExp` of opsets 13 to 17 have their axes as an attribute,
which OpenVINO ignores: it reduces every axis. `TopK` of equal values has the lower index first in
ONNX, and any in OpenVINO.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.worker.runtime_interface.distinct_operators import Operators

if TYPE_CHECKING:
    import openvino

_FIRST, _LAST = 13, 17
# The first opset in which the number is an input, and smallest values can be asked for.
_TOP_K_SINCE = 11


def add_corrections(core: "openvino.Core", operators: Operators | None) -> None:
    """Let `core` translate what a graph has of such operators; nothing changes for other graphs."""
    from openvino.frontend.onnx import ConversionExtension

    for name in _wrong(operators):
        core.add_extension(ConversionExtension(name, partial(_reduced, _REDUCTIONS[name])))
    if operators is not None and operators.opsets.get("", 0) >= _TOP_K_SINCE:
        core.add_extension(ConversionExtension("TopK", _largest))


def _largest(node: Any) -> Any:  # noqa: ANN401 - a NodeContext, which has no types
    from openvino import opset11 as ops

    mode = "max" if node.get_attribute("largest", 1) else "min"
    count = ops.squeeze(node.get_input(1), np.int64(0))
    axis = node.get_attribute("axis", -1)
    found = ops.topk(node.get_input(0), count, axis, mode, "value", "i64", stable=True)
    return found.outputs()


def _wrong(operators: Operators | None) -> Iterator[str]:
    if operators is None or not _FIRST <= operators.opsets.get("", 0) <= _LAST:
        return
    used = {operator.name for operator in operators.operators}
    yield from (name for name in _REDUCTIONS if name in used)


def _reduced(
    reduce: Callable[[Any, Any], Any],
    node: Any,  # noqa: ANN401 - a NodeContext, which has no types
) -> Any:  # noqa: ANN401
    """Reduce a node's axes, all if it names none, and drop them unless it keeps them."""
    from openvino import opset13 as ops

    values, given = node.get_input(0), node.get_attribute("axes", [])
    rank = ops.squeeze(ops.shape_of(ops.shape_of(values)), 0)
    every = ops.range(0, rank, 1, "i64")
    axes = ops.constant(np.asarray(given, np.int64)) if len(given) else every
    found = reduce(values, axes)
    return (found if node.get_attribute("keepdims", 1) else ops.squeeze(found, axes)).outputs()


def _norm(values: Any, axes: Any) -> Any:  # noqa: ANN401
    from openvino import opset13 as ops

    return ops.reduce_l1(values, axes, keep_dims=True)


def _log_sum(values: Any, axes: Any) -> Any:  # noqa: ANN401
    from openvino import opset13 as ops

    return ops.log(ops.reduce_sum(values, axes, keep_dims=True))


def _log_sum_exp(values: Any, axes: Any) -> Any:  # noqa: ANN401
    """Take the largest value out before the exponential, which would overflow."""
    from openvino import opset13 as ops

    largest = ops.reduce_max(values, axes, keep_dims=True)
    summed = ops.reduce_sum(ops.exp(ops.subtract(values, largest)), axes, keep_dims=True)
    return ops.add(ops.log(summed), largest)


_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ReduceL1": _norm,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}

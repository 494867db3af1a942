"""Why rounding a value matters: what the values are, and what is computed from them next."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.worker.metrics.magnitudes import rms

# Bits of the significand, the leading one included: whole numbers up to 2 to this power are exact.
_BITS: dict[str, int] = {"float16": 11, "bfloat16": 8}
# A difference this many times smaller than what it is the difference of magnifies its rounding.
_CANCELS = 16.0
# They make steps of what changes slowly: which side of a step a value is on may be a matter of
# rounding.
_STEPS = frozenset(
    {
        *("Floor", "Ceil", "Round", "Sign", "Mod", "ArgMax", "ArgMin", "TopK", "Equal"),
        *("Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    }
)
# What they make of an error is in proportion to the value's size.
_STEEP = frozenset({"Exp", "Softmax", "LogSoftmax", "Sin", "Cos", "Tan", "Pow", "ReduceLogSumExp"})
# An error of a value that matters to a steep function.
_COARSE = 0.01

# Different numbers: a mask has fewer, and counts nothing.
_FEW = 4

Values = Mapping[str, np.ndarray]


def reason(
    names: Sequence[str],
    read_by: Sequence[ir.Node],
    values: Values,
    dtype: DType,
    *,
    is_output: bool = False,
) -> str:
    """Explain why rounding a value to a type matters; an empty text if nothing special is seen.

    `names` are the value and its rearranged copies, `read_by` the nodes that read them; `values`
    are theirs and the nodes' results, in float32.
    """
    own = next((values[name] for name in names if name in values), None)
    if own is None or not own.size or not np.isfinite(own).all():
        return ""
    largest = float(np.abs(own).max())
    if largest > LIMITS[dtype].largest:
        most = LIMITS[dtype].largest
        return f"it holds {largest:.6g}, and the largest number of {dtype} is {most:.6g}"
    whole = 2.0 ** _BITS[dtype]
    counts = np.unique(own).size > _FEW and np.array_equal(own, np.round(own))
    if largest > whole and counts:
        return (
            f"it holds whole numbers up to {largest:.6g}, and {dtype} holds every whole number only"
            f" up to {whole:.6g}"
        )
    for node in read_by:
        if (text := _of_reader(node, own, largest, values, dtype)) is not None:
            return text
    if is_output:
        rounding = largest * 2.0 ** -_BITS[dtype]
        return (
            f"it is an output of up to {largest:.3g}, which {dtype} rounds by up to {rounding:.2g}"
        )
    return ""


def _of_reader(
    node: ir.Node, own: np.ndarray, largest: float, values: Values, dtype: DType
) -> str | None:
    name = f"{node.op_type} {node.name}"
    rounding = largest * 2.0 ** -_BITS[dtype]
    if node.op_type in ("Add", "Sub"):
        made = values.get(node.outputs[0].name or "")
        if made is not None and made.size and 0 < rms(made) * _CANCELS < rms(own):
            return (
                f"{name} makes a difference of about {rms(made):.3g} of values of about"
                f" {rms(own):.3g}, which {dtype} rounds by up to {rounding:.2g}"
            )
    to_integers = node.op_type == "Cast" and node.outputs[0].dtype in (
        *(ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL),
    )
    if node.op_type in _STEPS or to_integers:
        return f"{name} computes in steps, so one rounding can change its result by a whole step"
    if node.op_type in _STEEP and rounding > _COARSE:
        return (
            f"it reaches {largest:.3g}, where {dtype} rounds by up to {rounding:.2g}, and {name}"
            " magnifies that"
        )
    return None

"""Detects scales that do not fit their weights: wrong axis, wrong length, zero point of a different
shape.

Per-channel scales belong to the channels that a product sums separately: the columns of a MatMul's
[K, N] weight (axis 1), the rows of a Gemm's with transB, the first axis of a convolution's. Scales
along another axis of a square weight are legal, load and run, but yield different weights.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.quantization.quantized_weights import (
    dequantize,
    float_names,
    signal_to_noise,
)

# if zero points differ, because the numbers are then inconclusive.
_CLEARLY_BETTER = 6.0
# If a scale was computed for its channel, the channel's largest number is the type's maximum (127
# in int8). Along the wrong axis of a square weight, this holds for 63 % of the channels, 1 - 1/e,
# because maxima are then distributed at random.
_STRAY_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class ScaledWeight:
    """A DequantizeLinear of a constant; `channel` is the axis its consumer needs, None: any."""

    node: ir.Node
    module: str
    weight: ir.Value
    scale: ir.Value
    zero_point: ir.Value | None
    axis: int
    block_size: int
    channel: int | None


def check_dequantization(model: ir.Model, float32: ir.Model | None = None) -> list[Finding]:
    """Return Q104 for every weight whose scale or zero point does not fit.

    `float32` is the graph before quantization; if a scale fits several axes, its weights decide.
    Without it, the numbers themselves decide: along the correct axis, every channel uses its type's
    full range.
    """
    float_weights = _float_weights(float32) if float32 is not None else {}
    findings = []
    for scaled in scaled_weights(model):
        problem, evidence = _problem(scaled, float_weights)
        if problem is not None:
            findings.append(_finding(scaled, problem, evidence))
    return findings


def scaled_weights(model: ir.Model) -> Iterator[ScaledWeight]:
    """Walk the DequantizeLinear nodes whose quantized values and scale are constants."""
    for node, module in nodes_with_modules(model):
        if node.op_type != "DequantizeLinear" or len(node.inputs) < 2:
            continue
        weight, scale = node.inputs[0], node.inputs[1]
        if (
            weight is None
            or scale is None
            or constant_tensor(weight) is None
            or constant_tensor(scale) is None
        ):
            continue
        rank = len(_tensor(weight).shape)
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 1
        block = node.attributes["block_size"].as_int() if "block_size" in node.attributes else 0
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        yield ScaledWeight(
            node,
            module,
            weight,
            scale,
            zero,
            axis + rank if axis < 0 else axis,
            block,
            channel_axis(node.outputs[0]),
        )


def channel_axis(value: ir.Value) -> int | None:
    """Return the axis of a weight that its product keeps; None if there is no product, or several
    that disagree.
    """
    axes = {_kept_axis(node, index) for node, index in value.uses()}
    return next(iter(axes)) if len(axes) == 1 else None


def _kept_axis(node: ir.Node, index: int) -> int | None:
    value = node.inputs[index]
    rank = len(value.shape) if value is not None and value.shape is not None else 2
    match node.op_type, index:
        case "MatMul", 1:
            return rank - 1
        case "MatMul", 0:
            return rank - 2
        case "Gemm", (0 | 1):
            turned = node.attributes.get("transA" if index == 0 else "transB")
            return int((index == 1) != bool(turned is not None and turned.as_int()))
        case "Conv", 1:
            return 0
        case "ConvTranspose", 1:
            return 1
        case "Transpose", 0:
            after = channel_axis(node.outputs[0])
            order = node.attributes.get("perm")
            permutation = list(order.as_ints()) if order is not None else list(range(rank))[::-1]
            return permutation[after] if after is not None else None
        case _:
            return None


def _problem(
    scaled: ScaledWeight, float_weights: Mapping[str, ir.Value]
) -> tuple[str | None, dict[str, float]]:
    shape = tuple(_tensor(scaled.weight).shape.numpy())
    scales = tuple(_tensor(scaled.scale).shape.numpy())
    if scaled.zero_point is not None and constant_tensor(scaled.zero_point) is not None:
        zeros = tuple(_tensor(scaled.zero_point).shape.numpy())
        # A single one for the whole tensor may be a scalar or [1]: onnxruntime's quantizer writes
        # scales as the one and zero points as the other, and its kernels take both.
        if zeros != scales and not math.prod(zeros) == math.prod(scales) == 1:
            return (
                (
                    f"its zero points have shape {list(zeros)} and its scales {list(scales)}; the"
                    " shapes must be equal"
                ),
                {},
            )
    count = int(np.prod(scales))
    if count == 1 and not scaled.block_size:
        return None, {}
    if not scaled.axis < len(shape):
        return f"a weight of shape {list(shape)} has no axis {scaled.axis}", {}
    if scaled.block_size:
        return _blocks_problem(scaled, shape, scales), {}
    if len(scales) != 1 or count != shape[scaled.axis]:
        fitting = [axis for axis, size in enumerate(shape) if size == count]
        hint = f"; {count} is the size of axis {fitting[0]}" if fitting else ""
        return (
            (
                f"its {count} scales do not match axis {scaled.axis}, whose size is"
                f" {shape[scaled.axis]}{hint}"
            ),
            {},
        )
    return _axis_problem(scaled, shape, float_weights)


def _blocks_problem(
    scaled: ScaledWeight, shape: tuple[int, ...], scales: tuple[int, ...]
) -> str | None:
    expected = list(shape)
    expected[scaled.axis] = -(-shape[scaled.axis] // scaled.block_size)
    if list(scales) == expected:
        return None
    return (
        f"its scales have shape {list(scales)}; blocks of {scaled.block_size} along axis"
        f" {scaled.axis} need {expected}"
    )


def _axis_problem(
    scaled: ScaledWeight, shape: tuple[int, ...], float_weights: Mapping[str, ir.Value]
) -> tuple[str | None, dict[str, float]]:
    """Check a legal scale: whether it is along the channels, and whether another axis fits the
    weights better.
    """
    others = [
        axis
        for axis, size in enumerate(shape)
        if size == shape[scaled.axis] and axis != scaled.axis
    ]
    known = next(
        (
            float_weights[name]
            for name in float_names(scaled.weight.name or "")
            if name in float_weights
        ),
        None,
    )
    if (
        known is not None
        and tuple(known.const_value.shape.numpy() if known.const_value else ()) == shape
    ):
        return _better_axis(scaled, others, known)
    if scaled.channel is not None and scaled.channel in others:
        along, across = _full_channels(scaled, scaled.axis), _full_channels(scaled, scaled.channel)
        if across == 1.0 and along <= _STRAY_SHARE:
            figures = {
                f"axis {scaled.axis} full": round(along, 3),
                f"axis {scaled.channel} full": round(across, 3),
            }
            return (
                (
                    f"its scales apply to axis {scaled.axis}, but its integers were scaled along"
                    f" axis {scaled.channel}, the channels: every slice along that axis reaches"
                    f" the largest integer, but only {along:.0%} along axis {scaled.axis} do"
                ),
                figures,
            )
    return None, {}


def _better_axis(
    scaled: ScaledWeight, others: Sequence[int], known: ir.Value
) -> tuple[str | None, dict[str, float]]:
    """Say whether the scales restore the float weights clearly better along another axis."""
    fits = {axis: _fit(scaled, axis, known) for axis in (scaled.axis, *others)}
    best = max(fits, key=lambda axis: fits[axis])
    if not fits[best] > fits[scaled.axis] + _CLEARLY_BETTER:
        return None, {}
    problem = (
        f"its scales apply to axis {scaled.axis}, but only along axis {best} do they restore the"
        f" float32 weights ({fits[best]:.0f} dB against {fits[scaled.axis]:.0f} dB)"
    )
    return problem, {f"axis {axis} dB": round(fit, 1) for axis, fit in fits.items()}


def _fit(scaled: ScaledWeight, axis: int, known: ir.Value) -> float:
    values = dequantize(scaled.weight, scaled.scale, scaled.zero_point, axis, scaled.block_size)
    return signal_to_noise(_tensor(known).numpy(), values) if values is not None else -math.inf


def _full_channels(scaled: ScaledWeight, axis: int) -> float:
    """Return the share of channels along an axis whose largest number, relative to its zero point,
    is the overall maximum.
    """
    numbers = _tensor(scaled.weight).numpy().astype(np.int32)
    zeros = (
        _tensor(scaled.zero_point).numpy().astype(np.int32)
        if scaled.zero_point is not None
        else np.zeros(1, int)
    )
    if zeros.min() != zeros.max():
        return 1.0
    reach = np.abs(numbers - zeros.min()).max(
        axis=tuple(other for other in range(numbers.ndim) if other != axis)
    )
    # int8 includes -128, which is rarely used.
    return float((reach >= reach.max() - 1).mean())


def _float_weights(model: ir.Model) -> dict[str, ir.Value]:
    return {
        value.name: value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.name and value.const_value is not None and value.dtype == ir.DataType.FLOAT
    }


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    tensor = constant_tensor(value)
    assert tensor is not None
    return tensor


def _finding(scaled: ScaledWeight, problem: str, evidence: dict[str, float]) -> Finding:
    name = scaled.weight.name or ""
    return Finding(
        "Q104",
        f"the quantized weight {name!r} is scaled incorrectly: {problem}",
        Place(tensor=name, node=scaled.node.name or None, module=scaled.module or None),
        {
            "axis": scaled.axis,
            "weight_shape": [int(size) for size in _tensor(scaled.weight).shape.numpy()],
            "scale_shape": [int(size) for size in _tensor(scaled.scale).shape.numpy()],
            **evidence,
        },
        Remedy(
            "Quantize again with scales along the output channels (axis 1 of a MatMul's [K, N]),"
            " or with one scale for the whole weight (per_channel: false)."
        ),
    )

"""Quantized weights of any operator, and their distance from the original float32 weights."""

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.metrics.tensor_metrics import as_float64

# Suffixes that onnxruntime's quantizers append to a weight's name.
_SUFFIXES = ("_quantized", "_DQ_Q4", "_Q4")
# Operators that consume a weight's integers, scale and zero point: the indices of these inputs. An
# integer product's scale is multiplied with the result, so it is found by name.
_SCALED: dict[str, tuple[int, int, int]] = {
    "DequantizeLinear": (0, 1, 2),
    "QGemm": (3, 4, 5),
    "QLinearConv": (3, 4, 5),
    "QLinearMatMul": (3, 4, 5),
}
_INTEGER_PRODUCTS: dict[str, tuple[int, int]] = {"MatMulInteger": (1, 3), "ConvInteger": (1, 3)}


@dataclasses.dataclass(frozen=True)
class QuantizedWeight:
    """A dequantized weight, under the name of its integers, with the module of its first
    consumer.
    """

    name: str
    module: str
    values: np.ndarray


def float_names(quantized: str) -> Iterator[str]:
    """Return the possible names of the float32 weight behind a quantized one."""
    for suffix in _SUFFIXES:
        if quantized.endswith(suffix):
            name = quantized.removesuffix(suffix)
            yield name
            yield name.removesuffix(".transposed")
            yield f"{name}.T"


def quantized_weights(model: ir.Model) -> Iterator[QuantizedWeight]:
    """Walk a graph's distinct quantized weights, dequantized one at a time."""
    constants = {
        value.name: value for graph in model.graphs() for value in graph.initializers.values()
    }
    seen = set()
    for node, module in nodes_with_modules(model):
        value = _weight_input(node)
        if value is None or value in seen or constant_tensor(value) is None:
            continue
        values = _values(node, constants)
        if values is not None:
            seen.add(value)
            yield QuantizedWeight(value.name or "", module, values)


def _weight_input(node: ir.Node) -> ir.Value | None:
    index = None
    if node.op_type in _SCALED:
        index = _SCALED[node.op_type][0]
    elif node.op_type in _INTEGER_PRODUCTS:
        index = _INTEGER_PRODUCTS[node.op_type][0]
    elif node.op_type == "MatMulNBits":
        index = 1
    value = _input(node, index) if index is not None else None
    # An embedding looks up rows first and dequantizes them afterwards.
    rows = value.producer() if value is not None else None
    if rows is not None and rows.op_type == "Gather" and node.op_type == "DequantizeLinear":
        return rows.inputs[0]
    return value


def _values(node: ir.Node, constants: Mapping[str | None, ir.Value]) -> np.ndarray | None:
    if node.op_type == "MatMulNBits":
        return _unpacked(node)
    if node.op_type in _INTEGER_PRODUCTS:
        index, zero = _INTEGER_PRODUCTS[node.op_type]
        weight = node.inputs[index]
        assert weight is not None
        scale = constants.get(f"{(weight.name or '').removesuffix('_quantized')}_scale")
        return dequantize(
            weight, scale, _input(node, zero), -1 if node.op_type == "MatMulInteger" else 0
        )
    weight = _weight_input(node)
    scale, zero_point = (_input(node, index) for index in _SCALED[node.op_type][1:])
    assert weight is not None
    axis = {"QLinearConv": 0, "QLinearMatMul": -1, "QGemm": -1}.get(node.op_type, 1)
    if (
        node.op_type == "QGemm"
        and (turned := node.attributes.get("transB")) is not None
        and turned.as_int()
    ):
        axis = 0
    if node.op_type == "DequantizeLinear" and "axis" in node.attributes:
        axis = node.attributes["axis"].as_int()
    block = node.attributes["block_size"].as_int() if "block_size" in node.attributes else 0
    return dequantize(weight, scale, zero_point, axis, block)


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def dequantize(
    weight: ir.Value,
    scale: ir.Value | None,
    zero_point: ir.Value | None,
    axis: int,
    block_size: int = 0,
) -> np.ndarray | None:
    """Return (number - zero point) * scale in float32, with scales along an axis; None if they are
    unknown or do not fit.
    """
    numbers = _array(weight)
    scales, zeros = (
        _array(scale),
        _array(zero_point) if zero_point is not None else np.zeros(1, np.float32),
    )
    if numbers is None or scales is None or zeros is None:
        return None
    if block_size:
        keep = range(numbers.shape[axis])
        scales = np.repeat(scales, block_size, axis=axis).take(keep, axis=axis)
        if zeros.size > 1:
            zeros = np.repeat(zeros, block_size, axis=axis).take(keep, axis=axis)
    else:
        shape = [1] * numbers.ndim
        if max(scales.size, zeros.size) > 1:
            shape[axis] = -1
        scales, zeros = (
            scales.reshape(shape),
            zeros.reshape(shape if zeros.size > 1 else [1] * numbers.ndim),
        )
    try:
        values: np.ndarray = (numbers - zeros) * scales
    except ValueError:  # not broadcastable: the scale belongs to another weight
        return None
    return values if values.shape == numbers.shape else None


def _array(value: ir.Value | None) -> np.ndarray | None:
    tensor = constant_tensor(value) if value is not None else None
    if tensor is None:
        return None
    array: np.ndarray = tensor.numpy().astype(np.float32)
    return array


def _unpacked(node: ir.Node) -> np.ndarray | None:
    """Return a MatMulNBits weight as [K, N]: four bits each, low nibble first, in blocks along
    K.
    """
    if (node.attributes["bits"].as_int() if "bits" in node.attributes else 4) != 4:
        return None
    inner, columns = node.attributes["K"].as_int(), node.attributes["N"].as_int()
    packed, scales = constant_tensor(node.inputs[1]), constant_tensor(node.inputs[2])
    if packed is None or scales is None:
        return None
    blocks = packed.numpy().reshape(columns, -1, node.attributes["block_size"].as_int() // 2)
    numbers = (
        np.stack([blocks & 15, blocks >> 4], axis=-1)
        .reshape(columns, blocks.shape[1], -1)
        .astype(np.float32)
    )
    zeros = np.full((columns, blocks.shape[1]), 8.0, np.float32)
    given = (
        constant_tensor(node.inputs[3])
        if len(node.inputs) > 3 and node.inputs[3] is not None
        else None
    )
    if given is not None:
        halves = given.numpy().reshape(columns, -1)
        zeros = np.stack([halves & 15, halves >> 4], axis=-1).reshape(columns, -1)[
            :, : blocks.shape[1]
        ]
    values = (numbers - zeros[..., None]) * scales.numpy().reshape(columns, -1, 1)
    matrix: np.ndarray = values.reshape(columns, -1)[:, :inner].T
    return matrix


def signal_to_noise(reference: np.ndarray, found: np.ndarray) -> float:
    """Return the signal-to-quantization-noise ratio in dB: 10 log10(sum x^2 / sum (x - y)^2).

    Infinity without noise; NaN if an element is not finite. 6 dB correspond to one bit.
    """
    if reference.shape != found.shape:
        return math.nan
    return decibels(*energies(reference, found))


def energies(reference: np.ndarray, found: np.ndarray) -> tuple[float, float]:
    """Return sum x^2 and sum (x - y)^2, in float64."""
    x = as_float64(reference).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        noise = as_float64(found).reshape(-1) - x
        return float(x @ x), float(noise @ noise)


def decibels(signal: float, noise: float) -> float:
    """Return a ratio of energies in dB; see `signal_to_noise`."""
    if not (math.isfinite(signal) and math.isfinite(noise)):
        return math.nan
    if noise == 0.0:
        return math.inf
    return 10.0 * math.log10(signal / noise) if signal > 0.0 else -math.inf

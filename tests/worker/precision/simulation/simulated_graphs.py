"""Prints the SHA-256 of what simulated graphs compute, by graph and precision, as JSON.

Run it on two kinds of processor, and compare: `python simulated_graphs.py`. The graphs cover every
operator that a simulation computes in float64 or writes out, on thousands of elements each: two
processors differ in the last bit of a few elements in a thousand.
"""

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_session import open_graph
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.simulated_graph import define_file, simulate_file

PRECISIONS = ("float32", "float16", "bfloat16")
_RNG_SEED = 5
_ROWS = "float[N, 48, 40] x"
_IMAGE = "float[N, 6, 24, 24] x"
_STEPS = "float[T, N, 24] x"
_ATTENTION = "float[N, 4, 24, 16] x"

# What a graph computes from `x`, with the shapes of its weights a, b, c.
Graph = tuple[str, str, dict[str, tuple[int, ...]]]


GRAPHS: dict[str, Graph] = {
    **{name: (f"y = {name}(x)", _ROWS, {}) for name in ("Cos", "Erf", "Exp", "Sigmoid", "Sin")},
    **{name: (f"y = {name}(x)", _ROWS, {}) for name in ("Tan", "Tanh", "Softplus", "Mish", "Elu")},
    **{name: (f"y = {name}(x)", _ROWS, {}) for name in ("Selu", "Celu", "Reciprocal")},
    "Gelu": ("y = Gelu(x)", _ROWS, {}),
    "Gelu tanh": ('y = Gelu<approximate = "tanh">(x)', _ROWS, {}),
    "Log": ("p = Abs(x) y = Log(p)", _ROWS, {}),
    "Sqrt": ("p = Abs(x) y = Sqrt(p)", _ROWS, {}),
    "Pow": ("p = Abs(x) y = Pow(p, a)", _ROWS, {"a": (40,)}),
    "Softmax": ("y = Softmax(x)", _ROWS, {}),
    "LogSoftmax": ("y = LogSoftmax(x)", _ROWS, {}),
    "LayerNormalization": ("y = LayerNormalization(x, a, b)", _ROWS, {"a": (40,), "b": (40,)}),
    "RMSNormalization": ("y = RMSNormalization(x, a)", _ROWS, {"a": (40,)}),
    "LpNormalization": ("y = LpNormalization(x)", _ROWS, {}),
    **{
        f"Reduce{name}": (f"y = Reduce{name}<keepdims = 1>(x, axis)", _ROWS, {})
        for name in ("L1", "L2", "LogSumExp", "Mean", "Sum", "SumSquare")
    },
    "ReduceProd": ("s = Abs(x) t = Add(s, one) y = ReduceProd<keepdims = 1>(t, axis)", _ROWS, {}),
    "CumSum": ("y = CumSum(x, last)", _ROWS, {}),
    "Sum": ("n = Neg(x) e = Mul(x, a) y = Sum(x, e, n, a)", _ROWS, {"a": (40,)}),
    "MatMul": ("y = MatMul(x, a)", _ROWS, {"a": (40, 64)}),
    "MatMul of two": ("t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(x, t)", _ROWS, {}),
    "Einsum": ('y = Einsum<equation = "nij,jk->nik">(x, a)', _ROWS, {"a": (40, 32)}),
    "Gemm": (
        "r = Reshape(x, rows) y = Gemm<transB = 1, alpha = 0.5>(r, a, b)",
        _ROWS,
        {"a": (32, 40), "b": (32,)},
    ),
    "Conv": ("y = Conv<pads = [1, 1, 1, 1]>(x, a, b)", _IMAGE, {"a": (8, 6, 3, 3), "b": (8,)}),
    "Conv of groups": (
        "y = Conv<group = 3, strides = [2, 1], dilations = [1, 2]>(x, a)",
        _IMAGE,
        {"a": (9, 2, 3, 3)},
    ),
    "Conv by channel": ("y = Conv<group = 6>(x, a)", _IMAGE, {"a": (6, 1, 5, 5)}),
    "ConvTranspose": (
        "y = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]>(x, a)",
        _IMAGE,
        {"a": (6, 4, 3, 3)},
    ),
    "BatchNormalization": (
        "v = Abs(d) y = BatchNormalization(x, a, b, c, v)",
        _IMAGE,
        {"a": (6,), "b": (6,), "c": (6,), "d": (6,)},
    ),
    "InstanceNormalization": ("y = InstanceNormalization(x, a, b)", _IMAGE, {"a": (6,), "b": (6,)}),
    "GroupNormalization": (
        "y = GroupNormalization<num_groups = 2>(x, a, b)",
        _IMAGE,
        {"a": (6,), "b": (6,)},
    ),
    "GlobalAveragePool": ("y = GlobalAveragePool(x)", _IMAGE, {}),
    "Attention": ("y = Attention(x, x, x)", _ATTENTION, {}),
    "LSTM": (
        'y, h, s = LSTM<hidden_size = 20, direction = "bidirectional">(x, a, b, c)',
        _STEPS,
        {"a": (2, 80, 24), "b": (2, 80, 20), "c": (2, 160)},
    ),
    "GRU": (
        "y, h = GRU<hidden_size = 20, linear_before_reset = 1>(x, a, b, c)",
        _STEPS,
        {"a": (1, 60, 24), "b": (1, 60, 20), "c": (1, 120)},
    ),
    "RNN": (
        'y, h = RNN<hidden_size = 20, direction = "reverse">(x, a, b)',
        _STEPS,
        {"a": (1, 20, 24), "b": (1, 20, 20)},
    ),
    "tail": ("e = Mul(x, tiny) y = MatMul(e, a)", _ROWS, {"a": (40, 64)}),
    "quantized": (
        """q = QuantizeLinear(x, step, half) d = DequantizeLinear(q, step, half)
        w = DequantizeLinear(whole, step, none) y = MatMul(d, w)""",
        _ROWS,
        {},
    ),
}
_SIZES = {
    _ROWS: (3, 48, 40),
    _IMAGE: (2, 6, 24, 24),
    _STEPS: (24, 8, 24),
    _ATTENTION: (3, 4, 24, 16),
}
_OPSET = 23
_TYPES = {"float32": "float", "int64": "int64", "int8": "int8", "uint8": "uint8"}


def parsed(name: str) -> ir.Model:
    """Return a graph with its weights."""
    body, header, shapes = GRAPHS[name]
    rng = np.random.default_rng(_RNG_SEED)
    # Large weights would make a recurrent layer chaotic.
    size = 0.2 if header == _STEPS else 1.0
    weights = {
        key: (rng.normal(size=shape) * size).astype(np.float32) for key, shape in shapes.items()
    }
    weights |= {
        "axis": np.array([-1]),
        "last": np.array(2),
        "rows": np.array([-1, 40]),
        "one": np.array(0.5, np.float32),
        "tiny": np.array(1e-38, np.float32),
        "step": np.array(0.02, np.float32),
        "half": np.array(120, np.uint8),
        "none": np.array(0, np.int8),
        "whole": rng.integers(-128, 128, (40, 32)).astype(np.int8),
    }
    read = {key: each for key, each in weights.items() if re.search(rf"\b{key}\b", body)}
    given = ", ".join(
        f"{_TYPES[each.dtype.name]}[{','.join(map(str, each.shape))}] {key}"
        for key, each in read.items()
    )
    rank = {_STEPS: 4, _ROWS: 2 if "rows" in read else 3}.get(header, 4)
    if name in ("LSTM", "GRU", "RNN"):
        rank = 4
    result = f"float[{','.join('ABCD'[:rank])}] y"
    model = ir.from_onnx_text(
        f'<ir_version: 11, opset_import: ["": {_OPSET}]> g ({header}{", " if given else ""}{given})'
        f" => ({result}) {{ {body} }}"
    )
    for value in [value for value in model.graph.inputs if value.name in read]:
        value.const_value = ir.tensor(read[value.name or ""], name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    return model


def simulated(name: str, precision: str) -> np.ndarray:
    """Return what a graph's simulation computes."""
    rng = np.random.default_rng(_RNG_SEED + 1)
    x = (rng.normal(size=_SIZES[GRAPHS[name][1]]) * 2).astype(np.float32)
    model = prepare(parsed(name))
    write: Callable[[Path, Path], None] = define_file
    if precision != "float32":
        model = convert(model, assign(model, PrecisionPlan(precision, ()))).model
        write = simulate_file
    with tempfile.TemporaryDirectory() as folder:
        source, destination = Path(folder) / "built.onnx", Path(folder) / "simulated.onnx"
        ir.save(model, source)
        write(source, destination)
        found: np.ndarray = open_graph(destination).run({"x": x})["y"]
    return found


def all_digests() -> dict[str, str]:
    """Return the digests of all graphs in all precisions."""
    return {
        f"{name}, {precision}": hashlib.sha256(
            np.ascontiguousarray(simulated(name, precision)).tobytes()
        ).hexdigest()
        for name in GRAPHS
        for precision in PRECISIONS
    }


if __name__ == "__main__":
    json.dump(all_digests(), sys.stdout)

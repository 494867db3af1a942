"""Kernels against coremltools' own value inference, which was written apart from them."""

from typing import Any

import numpy as np
import pytest
from mil_programs import apply, assert_close

RANDOM = np.random.default_rng(0)


def floats(*shape: int, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return RANDOM.uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, low: int = -9, high: int = 9) -> np.ndarray:
    return RANDOM.integers(low, high, shape).astype(np.int32)


def booleans(*shape: int) -> np.ndarray:
    return RANDOM.random(shape) < 0.5


Case = tuple[str, dict[str, Any]]

UNARY: dict[str, tuple[float, float]] = {
    "abs": (-3, 3),
    "acos": (-1, 1),
    "asin": (-1, 1),
    "atan": (-3, 3),
    "atanh": (-0.9, 0.9),
    "ceil": (-3, 3),
    "cos": (-3, 3),
    "cosh": (-3, 3),
    "erf": (-3, 3),
    "exp": (-3, 3),
    "exp2": (-3, 3),
    "floor": (-3, 3),
    "identity": (-3, 3),
    "relu": (-3, 3),
    "relu6": (-3, 9),
    "round": (-3, 3),
    "sigmoid": (-3, 3),
    "sign": (-3, 3),
    "sin": (-3, 3),
    "sinh": (-3, 3),
    "softplus": (-3, 3),
    "softsign": (-3, 3),
    "sqrt": (0, 9),
    "square": (-3, 3),
    "tan": (-1, 1),
    "tanh": (-3, 3),
}
BINARY = ["add", "sub", "mul", "maximum", "minimum", "mod", "real_div", "floor_div", "pow"]
COMPARISONS = ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
REDUCTIONS = [
    "l1_norm",
    "l2_norm",
    "log_sum",
    "log_sum_exp",
    "max",
    "mean",
    "min",
    "prod",
    "sum",
    "sum_square",
]
HALF_CASES = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.0, -0.0], np.float32)

FLOAT_CASES: list[Case] = [
    *((name, {"x": floats(2, 3, low=low, high=high)}) for name, (low, high) in UNARY.items()),
    ("round", {"x": HALF_CASES}),
    ("sign", {"x": HALF_CASES}),
    *((name, {"x": floats(2, 1, 3, low=1), "y": floats(4, 1, low=1)}) for name in BINARY),
    *(
        (name, {"x": floats(3), "y": np.float32(0.7)})
        for name in ("add", "sub", "mul", "maximum", "minimum")
    ),
    *(
        (name, {"x": integers(2, 5, low=0, high=3) * 1.0, "y": integers(5, low=0, high=3) * 1.0})
        for name in COMPARISONS
    ),
    *(("reduce_" + name, {"x": floats(2, 3, 4, low=0.1), "axes": [1]}) for name in REDUCTIONS),
    *(
        ("reduce_" + name, {"x": floats(2, 3, 4, low=0.1), "axes": [-1, 0], "keep_dims": True})
        for name in REDUCTIONS
    ),
    *(("reduce_" + name, {"x": floats(2, 3, low=0.1)}) for name in REDUCTIONS),
    *((name, {"x": floats(2, 3, 4), "axis": -1}) for name in ("reduce_argmax", "reduce_argmin")),
    *(
        (name, {"x": floats(2, 3), "axis": 0, "keep_dims": True})
        for name in ("reduce_argmax", "reduce_argmin")
    ),
    *(
        (name, {"x": np.zeros((2, 3), np.float32), "axis": 1})
        for name in ("reduce_argmax", "reduce_argmin")
    ),
    ("argsort", {"x": floats(3, 5), "axis": 0, "ascending": True}),
    ("argsort", {"x": floats(3, 5), "axis": -1}),
    ("band_part", {"x": floats(2, 4, 5), "lower": 1, "upper": 0}),
    ("band_part", {"x": floats(4, 3), "lower": -1, "upper": 1}),
    ("clamped_relu", {"x": floats(9), "alpha": np.float32(0.3), "beta": np.float32(1.0)}),
    ("clip", {"x": floats(9), "alpha": np.float32(-1), "beta": np.float32(1)}),
    ("concat", {"values": (floats(2, 3), floats(2, 1)), "axis": -1}),
    ("concat", {"values": (floats(2, 3),), "axis": 0}),
    ("cumsum", {"x": floats(2, 5), "axis": 1}),
    ("cumsum", {"x": floats(2, 5), "axis": 0, "reverse": True}),
    ("einsum", {"values": (floats(2, 3, 4, 5), floats(2, 5, 4, 6)), "equation": "nchw,nwhu->nchu"}),
    ("elu", {"x": floats(9), "alpha": np.float32(0.7)}),
    ("expand_dims", {"x": floats(2, 3), "axes": [0, -1]}),
    ("expand_dims", {"x": floats(2, 3), "axes": [1, 2]}),
    ("fill", {"shape": np.array([2, 3], np.int32), "value": np.float32(1.5)}),
    ("fill_like", {"ref_tensor": floats(2, 3), "value": np.float32(1.5)}),
    ("flatten2d", {"x": floats(2, 3, 4), "axis": -1}),
    ("flatten2d", {"x": floats(2, 3, 4), "axis": 2}),
    ("gather", {"x": floats(4, 3), "indices": np.array([[0, 3], [2, 2]], np.int32), "axis": 0}),
    ("gather", {"x": floats(2, 4, 3), "indices": np.array([1, 0], np.int32), "axis": -1}),
    (
        "gather",
        {
            "x": floats(2, 4, 3),
            "indices": np.array([[1], [3]], np.int32),
            "axis": 1,
            "batch_dims": 1,
        },
    ),
    ("gather", {"x": floats(4, 3), "indices": np.int32(2), "axis": 0}),
    (
        "gather_along_axis",
        {"x": floats(2, 3), "indices": np.array([[0, 2], [1, 1]], np.int32), "axis": -1},
    ),
    ("gelu", {"x": floats(9)}),
    ("gelu", {"x": floats(9), "mode": "TANH_APPROXIMATION"}),
    ("gelu", {"x": floats(9), "mode": "SIGMOID_APPROXIMATION"}),
    ("inverse", {"x": floats(5, low=0.5), "epsilon": np.float32(0.1)}),
    ("l2_norm", {"x": floats(2, 3, 2, 2), "epsilon": np.float32(1e-3)}),
    ("l2_norm", {"x": floats(3, 2, 2)}),
    ("layer_norm", {"x": floats(2, 3, 4), "axes": [-1], "gamma": floats(4), "beta": floats(4)}),
    (
        "layer_norm",
        {"x": floats(2, 3, 4), "axes": [1, 2], "gamma": floats(3, 4), "beta": floats(3, 4)},
    ),
    ("layer_norm", {"x": floats(2, 3, 4), "axes": [1], "gamma": floats(3), "beta": floats(3)}),
    ("layer_norm", {"x": floats(2, 3), "axes": [0, 1], "epsilon": np.float32(0.1)}),
    ("leaky_relu", {"x": floats(9), "alpha": np.float32(0.3)}),
    ("linear", {"x": floats(2, 3), "weight": floats(4, 3), "bias": floats(4)}),
    ("linear", {"x": floats(2, 3), "weight": floats(4, 3)}),
    ("linear_activation", {"x": floats(9), "alpha": np.float32(0.3), "beta": np.float32(1)}),
    ("log", {"x": floats(5, low=0.5), "epsilon": np.float32(0.1)}),
    ("matmul", {"x": floats(2, 3, 4), "y": floats(4, 5)}),
    ("matmul", {"x": floats(4, 3), "y": floats(2, 5, 4), "transpose_x": True, "transpose_y": True}),
    ("non_zero", {"x": np.array([[0, 1.5], [2, 0]], np.float32)}),
    ("pad", {"x": floats(2, 3), "pad": [1, 0, 2, 3], "constant_val": np.float32(7)}),
    ("pad", {"x": floats(2, 3), "pad": [0, 0, 0, 0]}),
    ("pad", {"x": floats(2, 3, 4), "pad": [1, 1, 3, 2], "mode": "reflect"}),
    ("pad", {"x": floats(2, 3), "pad": [2, 3], "mode": "replicate"}),
    ("prelu", {"x": floats(2, 3, 4, 1), "alpha": floats(3, low=0)}),
    ("range_1d", {"start": np.float32(0.5), "end": np.float32(3.2), "step": np.float32(0.7)}),
    ("range_1d", {"start": np.float32(3), "end": np.float32(0), "step": np.float32(-1)}),
    ("reshape", {"x": floats(2, 6), "shape": [3, -1]}),
    ("reshape", {"x": floats(2, 6), "shape": [0, 6]}),
    ("reverse", {"x": floats(2, 3), "axes": [-1]}),
    ("reverse", {"x": floats(2, 3)}),
    ("rsqrt", {"x": floats(5, low=0.5), "epsilon": np.float32(0.1)}),
    ("scaled_tanh", {"x": floats(9), "alpha": np.float32(0.3), "beta": np.float32(1.2)}),
    (
        "scatter_along_axis",
        {
            "data": floats(2, 4),
            "indices": np.array([[0, 2], [3, 1]], np.int32),
            "updates": floats(2, 2),
            "axis": 1,
            "mode": "update",
        },
    ),
    ("select", {"cond": booleans(2, 3), "a": floats(2, 3), "b": floats(2, 3)}),
    (
        "select",
        {
            "cond": np.array([[True], [False]]),
            "a": floats(2, 3),
            "b": np.full((2, 3), np.inf, np.float32),
        },
    ),
    ("shape", {"x": floats(2, 3, 1)}),
    ("sigmoid_hard", {"x": floats(9), "alpha": np.float32(0.3), "beta": np.float32(0.5)}),
    ("slice_by_size", {"x": floats(3, 4), "begin": [1, 1], "size": [2, -1]}),
    ("slice_by_size", {"x": floats(3, 4), "begin": [-2, 1], "size": [1, 2]}),
    ("softmax", {"x": floats(2, 3, 4), "axis": 1}),
    ("softmax", {"x": floats(2, 3) + 80, "axis": -1}),
    (
        "softplus_parametric",
        {"x": floats(2, 3, 4), "alpha": floats(3, low=0.1), "beta": floats(3, low=0.1)},
    ),
    ("split", {"x": floats(2, 6), "axis": -1, "num_splits": 3}),
    ("split", {"x": floats(2, 6), "axis": 1, "split_sizes": [1, 2, 3]}),
    ("squeeze", {"x": floats(1, 2, 1), "axes": [0]}),
    ("squeeze", {"x": floats(1, 2, 1)}),
    ("stack", {"values": (floats(2, 3), floats(2, 3)), "axis": 1}),
    ("stack", {"values": (floats(2, 3), floats(2, 3)), "axis": -1}),
    ("threshold", {"x": floats(9), "alpha": np.float32(0.3)}),
    ("thresholded_relu", {"x": floats(9), "alpha": np.float32(0.3)}),
    ("tile", {"x": floats(2, 3), "reps": [2, 1]}),
    ("topk", {"x": floats(2, 5), "k": 3, "axis": -1}),
    ("topk", {"x": floats(5, 2), "k": 2, "axis": 0, "ascending": True}),
    ("transpose", {"x": floats(2, 3, 4), "perm": [1, -1, 0]}),
    (
        "scaled_dot_product_attention",
        {
            "query": floats(2, 3, 4),
            "key": floats(2, 5, 4),
            "value": floats(2, 5, 6),
            "attn_mask": floats(2, 3, 5),
        },
    ),
    (
        "scaled_dot_product_attention",
        {
            "query": floats(1, 2, 4),
            "key": floats(1, 3, 4),
            "value": floats(1, 3, 4),
            "attn_mask": np.array([[True, False, True], [False, True, True]]),
        },
    ),
    (
        "slice_update",
        {
            "x": floats(3, 4),
            "update": floats(2, 2),
            "begin": [0, 1],
            "end": [2, 4],
            "stride": [1, 2],
        },
    ),
]

OTHER_CASES: list[Case] = [
    *(
        (name, {"x": integers(2, 3), "y": integers(3, low=1)})
        for name in BINARY
        if name not in ("pow", "real_div")
    ),
    ("pow", {"x": integers(2, 3), "y": integers(3, low=0, high=4)}),
    ("real_div", {"x": np.array([6, -8], np.int32), "y": np.array([3, 4], np.int32)}),
    *((name, {"x": integers(2, 5, high=-5), "y": integers(5, high=-5)}) for name in COMPARISONS),
    *(
        (name, {"x": booleans(2, 3), "y": booleans(3)})
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    ("logical_not", {"x": booleans(2, 3)}),
    *((name, {"x": integers(2, 3)}) for name in ("abs", "sign", "square")),
    *(
        ("reduce_" + name, {"x": integers(2, 3), "axes": [0]})
        for name in ("max", "min", "prod", "sum", "sum_square")
    ),
    ("reduce_mean", {"x": np.array([[-7, 2], [4, 5]], np.int32), "axes": [1]}),
    ("cast", {"x": np.array([1.9, -1.9, 0.0], np.float32), "dtype": "int32"}),
    ("cast", {"x": np.array([1.9, -1.9, 0.0], np.float32), "dtype": "bool"}),
    ("cast", {"x": np.array([1 / 3, 65519.9, 1e-8], np.float32), "dtype": "fp16"}),
    ("cast", {"x": integers(3), "dtype": "fp32"}),
    ("cast", {"x": integers(3), "dtype": "fp16"}),
    ("cast", {"x": integers(3), "dtype": "int16"}),
    ("cast", {"x": np.array([1, 65535], np.int32), "dtype": "uint16"}),
    ("cast", {"x": booleans(3), "dtype": "fp32"}),
    ("concat", {"values": (np.int32(2), np.int32(5)), "axis": 0}),
    ("range_1d", {"start": np.int32(5), "end": np.int32(-3), "step": np.int32(-2)}),
    ("range_1d", {"start": np.int32(0), "end": np.int32(4), "step": np.int32(1)}),
    ("select", {"cond": booleans(2, 3), "a": integers(2, 3), "b": integers(2, 3)}),
    ("shape", {"x": integers(4)}),
    ("tile", {"x": integers(2, 1), "reps": [1, 3]}),
    ("transpose", {"x": booleans(2, 3), "perm": [1, 0]}),
    ("gather", {"x": integers(4), "indices": np.array([-1, 0], np.int32), "axis": 0}),
    ("quantize", {"input": floats(2, 3), "scale": np.float32(0.02), "output_dtype": "int8"}),
    (
        "quantize",
        {
            "input": floats(2, 3),
            "scale": np.array([0.02, 0.01, 0.5], np.float32),
            "zero_point": np.array([3, 0, 128], np.uint8),
            "axis": 1,
            "output_dtype": "uint8",
        },
    ),
]


def name_of(case: Case) -> str:
    return case[0]


def half(value: Any) -> Any:
    """Return float arguments in float16, others as they are."""
    if isinstance(value, tuple):
        return tuple(map(half, value))
    is_float = isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"
    return value.astype(np.float16) if is_float else value


def check(case: Case, steps: float) -> None:
    operation, arguments = case
    inferred, found = apply(operation, **arguments)
    assert None not in [value if value is None else 0 for value in inferred], (
        "coremltools infers nothing here"
    )
    for value, expected in zip(found, inferred, strict=True):
        assert_close(value, expected, steps=steps)


@pytest.mark.parametrize("case", FLOAT_CASES, ids=name_of)
def test_float32(case: Case) -> None:
    check(case, steps=40)


# coremltools compares a float16 range's length with a number that float16 cannot hold.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("case", FLOAT_CASES, ids=name_of)
def test_float16(case: Case) -> None:
    # The inference computes in float16 throughout; the evaluator rounds once. The bound is for the
    # inference.
    check((case[0], {name: half(value) for name, value in case[1].items()}), steps=30)


@pytest.mark.parametrize("case", OTHER_CASES, ids=name_of)
def test_other_types(case: Case) -> None:
    check(case, steps=2)

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import write

from convkit.protocol.messages import Quantization
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.quantization.channel_equalization import (
    METADATA_KEY,
    equalized_file,
    equalizing_exponents,
    exponents_of,
)
from convkit.worker.precision.quantization.module_choice import choose_kept
from convkit.worker.precision.quantization.quantize import quantize_file

STATIC = Quantization("static-int8")
DYNAMIC = Quantization("dynamic-int8")
CHANNELS = 8
GAINS = np.logspace(-3, 1, CHANNELS).astype(np.float32)
RANDOM = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def by_rows(values: np.ndarray, gains: np.ndarray) -> np.ndarray:
    return values * gains.reshape(-1, *[1] * (values.ndim - 1))


def graph(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int | str, ...]
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=output, **attributes)


PICTURE = ("n", 4, 10, 10)
ROWS = ("n", 5, 16)

# Each is a graph whose channels have gains that its last product undoes.
UNEVEN = {
    "depthwise convolution": (
        [
            node("Conv", "x first", "a", kernel_shape=[1, 1]),
            node("Conv", "a deep bias", "b", kernel_shape=[3, 3], pads=[1] * 4, group=CHANNELS),
            node("Relu", "b", "c"),
            node("Conv", "c last", "d", kernel_shape=[1, 1]),
            node("ReduceMean", "d axes", "y", keepdims=0),
        ],
        lambda: {
            "first": normal(CHANNELS, 4, 1, 1),
            "deep": by_rows(normal(CHANNELS, 1, 3, 3), GAINS),
            "bias": GAINS / 4,
            "last": normal(6, CHANNELS, 1, 1) / GAINS.reshape(1, -1, 1, 1),
            "axes": np.array([2, 3]),
        },
        PICTURE,
    ),
    "groups and a pooled vector": (
        [
            node("Conv", "x first", "a", kernel_shape=[1, 1]),
            node("Relu", "a", "b"),
            node("Conv", "b grouped", "c", kernel_shape=[1, 1], group=2),
            node("LeakyRelu", "c", "d"),
            node("GlobalAveragePool", "d", "e"),
            node("Flatten", "e", "f"),
            node("Gemm", "f last", "y", transB=1),
        ],
        lambda: {
            "first": by_rows(normal(CHANNELS, 4, 1, 1), GAINS),
            "grouped": np.repeat((1 / GAINS).reshape(2, 1, -1), 3, axis=1).reshape(6, -1, 1, 1)
            * normal(6, CHANNELS // 2, 1, 1),
            "last": normal(5, 6),
        },
        PICTURE,
    ),
    "transposed convolution": (
        [
            node("ConvTranspose", "x first", "a", kernel_shape=[2, 2], strides=[2, 2]),
            node("MaxPool", "a", "b", kernel_shape=[2, 2]),
            node("Conv", "b last", "y", kernel_shape=[1, 1]),
        ],
        lambda: {
            "first": normal(4, CHANNELS, 2, 2) * GAINS.reshape(1, -1, 1, 1),
            "last": normal(6, CHANNELS, 1, 1) / GAINS.reshape(1, -1, 1, 1),
        },
        PICTURE,
    ),
    "normalization before two products": (
        [
            node("LayerNormalization", "x gain shift", "a"),
            node("MatMul", "a query", "q"),
            node("MatMul", "a key", "k"),
            node("Add", "q k", "y"),
        ],
        lambda: {
            "gain": np.where(np.arange(16) == 5, 300, 1).astype(np.float32),
            "shift": normal(16),
            "query": normal(16, 7) * np.where(np.arange(16) == 5, 0.01, 1).reshape(-1, 1),
            "key": normal(16, 7) * np.where(np.arange(16) == 5, 0.01, 1).reshape(-1, 1),
        },
        ROWS,
    ),
    "normalization that is written out, transposed": (
        [
            node("Mul", "x gain", "a"),
            node("Add", "shift a", "b"),
            node("Transpose", "b", "c", perm=[0, 2, 1]),
            node("Conv", "c last", "y", kernel_shape=[1]),
        ],
        lambda: {
            "gain": np.where(np.arange(16) == 5, 300, 1).astype(np.float32),
            "shift": np.array([0.25], np.float32),
            "last": normal(7, 16, 1) * np.where(np.arange(16) == 5, 0.01, 1).reshape(1, -1, 1),
        },
        ROWS,
    ),
}


def made(name: str, folder: Path) -> tuple[Path, dict[str, JudgedCase]]:
    nodes, weights, shape = UNEVEN[name]
    values = {key: np.asarray(value) for key, value in weights().items()}
    values = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in values.items()}
    source = write(graph(nodes, values, shape), folder)
    found = {}
    for index in range(3):
        feeds = {"x": normal(*(2 if size == "n" else int(size) for size in shape))}
        found[f"case{index}"] = JudgedCase(feeds, {"y": run(source, feeds)}, {})
    return source, found


def run(path: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(["y"], feeds)[0]
    return found


def error(path: Path, cases: dict[str, JudgedCase]) -> float:
    worst = 0.0
    for case in cases.values():
        expected = case.expected["y"]
        found = run(path, dict(case.feeds))
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
    return worst


@pytest.mark.parametrize("name", UNEVEN)
def test_uneven_channels_are_made_alike_and_float32_stays_the_same(
    name: str, tmp_path: Path
) -> None:
    source, cases = made(name, tmp_path)
    feeds = [case.feeds for case in cases.values()]
    exponents = equalizing_exponents(source, STATIC, feeds)
    assert max(max(each) - min(each) for each in exponents.values()) >= 4
    with equalized_file(source, exponents) as even:
        assert even != source
        for case in cases.values():
            assert np.array_equal(run(even, dict(case.feeds)), case.expected["y"])
    plain, scaled = tmp_path / "plain.onnx", tmp_path / "scaled.onnx"
    quantize_file(source, plain, STATIC, feeds)
    even_one = Quantization("static-int8", equalize=True)
    findings = quantize_file(source, scaled, even_one, iter(feeds))  # as a build gives them
    assert [finding.code for finding in findings] == ["Q113"]
    assert error(scaled, cases) < error(plain, cases) / 3
    assert exponents_of(scaled) == exponents
    assert METADATA_KEY not in {each.key for each in onnx.load(plain).metadata_props}


# What stands between the uneven channels and the product, and does not commute with factors.
IN_BETWEEN = {
    "a function that bends": [node("Gelu", "a", "b")],
    "a bound": [node("Clip", "a zero one", "b")],
    "a sum with what is not scaled": [node("Add", "a x", "b")],
    "a number per row": [node("Softmax", "a", "b")],
    "a sum over the channels": [
        node("ReduceMean", "a last_axis", "m", keepdims=1),
        node("Sub", "a m", "b"),
    ],
    "sizes that mix them": [
        node("Reshape", "a halves", "h"),
        node("Transpose", "h", "t", perm=[0, 1, 3, 2]),
        node("Reshape", "t whole", "b"),
    ],
}


@pytest.mark.parametrize("between", IN_BETWEEN)
def test_channels_that_cannot_be_scaled_are_left(between: str, tmp_path: Path) -> None:
    nodes = [node("MatMul", "x first", "a"), *IN_BETWEEN[between], node("MatMul", "b last", "y")]
    gains = np.where(np.arange(16) == 5, 300, 1).astype(np.float32)
    weights = {
        "first": normal(16, 16) * gains,
        "last": normal(16, 7),
        "zero": np.zeros((), np.float32),
        "one": np.ones((), np.float32),
        "last_axis": np.array([-1]),
        "halves": np.array([0, 0, 2, 8]),
        "whole": np.array([0, 0, 16]),
    }
    used = {name for each in nodes for name in each.input}
    kept = {name: value for name, value in weights.items() if name in used}
    source = write(graph(nodes, kept, ROWS), tmp_path)
    assert equalizing_exponents(source, DYNAMIC, [{"x": normal(2, 5, 16)}]) == {}


def test_an_output_of_the_model_is_not_scaled(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x first", "y"), node("MatMul", "y last", "z")]
    gains = np.where(np.arange(16) == 5, 300, 1).astype(np.float32)
    model = graph(nodes, {"first": normal(16, 16) * gains, "last": normal(16, 7)}, ROWS)
    source = write(model, tmp_path)
    assert equalizing_exponents(source, DYNAMIC, [{"x": normal(2, 5, 16)}]) == {}


def test_a_weight_of_two_products_is_scaled_for_the_one(tmp_path: Path) -> None:
    gains = np.where(np.arange(16) == 5, 300, 1).astype(np.float32)
    nodes = [
        node("Mul", "x gain", "a"),
        node("MatMul", "a shared", "b"),
        node("Tanh", "b", "c"),
        node("MatMul", "c shared", "y"),
    ]
    source = write(graph(nodes, {"gain": gains, "shared": normal(16, 16) / 40}, ROWS), tmp_path)
    feeds = {"x": normal(2, 5, 16)}
    exponents = equalizing_exponents(source, DYNAMIC, [feeds])
    assert set(exponents) == {"a"}
    with equalized_file(source, exponents) as even:
        assert np.array_equal(run(even, feeds), run(source, feeds))


def test_a_dead_channel_and_one_of_zero_weights_keep_their_scale(tmp_path: Path) -> None:
    gains = np.where(np.arange(16) == 5, 300, 1).astype(np.float32)
    gains[2] = 0
    last = normal(16, 7)
    last[3] = 0
    nodes = [node("Mul", "x gain", "a"), node("MatMul", "a last", "y")]
    source = write(graph(nodes, {"gain": gains, "last": last}, ROWS), tmp_path)
    feeds = {"x": normal(2, 5, 16)}
    (exponents,) = equalizing_exponents(source, DYNAMIC, [feeds]).values()
    assert (exponents[2], exponents[3]) == (0, 0)
    assert exponents[5] >= 3


def test_a_search_equalizes_before_it_keeps_anything(tmp_path: Path) -> None:
    source, cases = made("depthwise convolution", tmp_path)
    feeds = [case.feeds for case in cases.values()]
    undecided = Quantization("static-int8", equalize=None)
    limits = {"y": {"cosine": 0.995}}
    kept = choose_kept(source, undecided, cases, limits, feeds, ("exact",))
    assert (kept.patterns, kept.met, kept.equalized) == ((), True, True)
    refused = Quantization("static-int8", equalize=False)
    assert not choose_kept(source, refused, cases, limits, feeds, ("exact",)).equalized


def test_the_metadata_is_what_a_reader_of_the_file_needs(tmp_path: Path) -> None:
    source, cases = made("depthwise convolution", tmp_path)
    quantized = tmp_path / "quantized.onnx"
    chosen = Quantization("static-int8", equalize=True)
    quantize_file(source, quantized, chosen, [case.feeds for case in cases.values()])
    texts = {each.key: each.value for each in onnx.load(quantized).metadata_props}
    assert all(len(each) == CHANNELS for each in json.loads(texts[METADATA_KEY]).values())

"""Weights inside the branches of an If, as voice models have them: one branch per sampling rate,
each with its own convolutions, products and LSTM.
"""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from convkit.protocol.messages import Quantization
from convkit.worker.graph.integer_products.product_rewriting import with_exact_products
from convkit.worker.precision.quantization.module_sensitivity import sensitivity, weight_noise
from convkit.worker.precision.quantization.quantize import is_quantized_operator, quantize_file
from convkit.worker.precision.quantization.switched_quantization import SwitchedModel
from convkit.worker.precision.threads import threads

WIDTH, HIDDEN = 64, 32


def branch(name: str, rate: str, seed: int) -> onnx.GraphProto:
    """Return a product, an LSTM and a product, with their weights as Constant nodes."""
    random = np.random.default_rng(seed)
    shapes = {
        "w": (WIDTH, WIDTH), "x": (1, 4 * HIDDEN, WIDTH), "r": (1, 4 * HIDDEN, HIDDEN),
        "o": (HIDDEN, WIDTH),
    }  # fmt: skip
    nodes = [
        helper.make_node(
            "Constant", [], [f"{rate}.{key}"], name=f"{rate}.constant.{key}",
            value=numpy_helper.from_array(
                (random.normal(size=shape) / np.sqrt(WIDTH)).astype(np.float32)
            ),
        )
        for key, shape in shapes.items()
    ]  # fmt: skip
    axes = numpy_helper.from_array(np.array([1], np.int64))
    nodes += [
        helper.make_node("MatMul", ["sound", f"{rate}.w"], [f"{rate}.p"], name=f"{rate}.in"),
        helper.make_node(
            "LSTM", [f"{rate}.p", f"{rate}.x", f"{rate}.r"], [f"{rate}.y"],
            hidden_size=HIDDEN, name=f"{rate}.lstm",
        ),
        helper.make_node("Constant", [], [f"{rate}.axes"], value=axes, name=f"{rate}.one"),
        helper.make_node("Squeeze", [f"{rate}.y", f"{rate}.axes"], [f"{rate}.s"], name=f"{rate}.s"),
        helper.make_node("MatMul", [f"{rate}.s", f"{rate}.o"], [f"{rate}.out"], name=f"{rate}.o"),
    ]  # fmt: skip
    result = helper.make_tensor_value_info(f"{rate}.out", TensorProto.FLOAT, ["t", "n", WIDTH])
    return helper.make_graph(nodes, name, [], [result])


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    node = helper.make_node(
        "If", ["is_16k"], ["frames"], name="rate",
        then_branch=branch("wide", "16k", 0), else_branch=branch("narrow", "8k", 1),
    )  # fmt: skip
    rate = [
        helper.make_node("Equal", ["sr", "sixteen"], ["is_16k"], name="equal"),
        node,
        helper.make_node("Tanh", ["frames"], ["speech"], name="tanh"),
    ]
    graph = helper.make_graph(
        rate, "vad",
        [
            helper.make_tensor_value_info("sound", TensorProto.FLOAT, ["t", "n", WIDTH]),
            helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("speech", TensorProto.FLOAT, ["t", "n", WIDTH])],
        [numpy_helper.from_array(np.array(16000, np.int64), "sixteen")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("vad") / "model.onnx"
    onnx.save(model, path)
    return path


def feeds(rate: int) -> dict[str, np.ndarray]:
    sound = np.random.default_rng(rate).normal(size=(5, 2, WIDTH)).astype(np.float32)
    return {"sound": sound, "sr": np.array(rate)}


def run(path, rate: int) -> np.ndarray:
    # As many threads as the joined model has: DynamicQuantizeLSTM's sums depend on their number,
    # and one moves an activation to the next of 255 steps.
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads() or 0
    # Products that saturate on some processors are exact in the joined model.
    model = with_exact_products(onnx.load(path)).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds(rate))[0])


def operators(path) -> dict[str, list[str]]:
    """Return the quantized operators of each body."""
    return {
        graph.name or "": sorted(node.op_type for node in graph if is_quantized_operator(node))
        for graph in ir.load(path).graphs()
    }


@pytest.fixture(scope="module", params=["dynamic-int8", "int4-weights"])
def quantized(request, source, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    assert [each.code for each in quantize_file(source, path, Quantization(request.param))] in (
        [], ["Q105"],
    )  # fmt: skip
    return request.param, path


def test_both_branches_are_quantized_and_still_right(source, quantized):
    kind, path = quantized
    found = operators(path)
    expected = {"dynamic-int8": "DynamicQuantizeLSTM", "int4-weights": "MatMulNBits"}[kind]
    assert expected in found["wide"]
    assert found["wide"] == found["narrow"]
    for rate in (8000, 16000):
        one, other = run(source, rate), run(path, rate)
        error = np.linalg.norm(one - other) / np.linalg.norm(one)
        assert 0 < error < 0.2


def test_the_weights_of_branches_are_compared_with_their_own(source, quantized):
    kind, path = quantized
    ((signal, noise),) = weight_noise(source, path).values()
    assert 0 < noise / signal < {"dynamic-int8": 1e-3, "int4-weights": 0.05}[kind]


def test_the_joined_model_is_the_quantized_one_with_all_switches_on(source, quantized):
    _, path = quantized
    with SwitchedModel(source, path) as switched:
        assert [join.tensor for join in switched.joins] == ["frames"]
        for rate in (8000, 16000):
            off = switched.run(feeds(rate), ())["speech"]
            on = switched.run(feeds(rate), switched.modules)["speech"]
            np.testing.assert_allclose(off, run(source, rate), atol=1e-5)
            np.testing.assert_allclose(on, run(path, rate), atol=1e-5)
            assert np.abs(on - off).max() > 1e-4


def test_the_cost_of_the_branch_that_ran_is_measured(source, quantized):
    _, path = quantized
    assert sensitivity(source, path, [feeds(16000)]).output_error > 1e-3


def test_static_int8_leaves_branches_alone(source, tmp_path):
    findings = quantize_file(
        source, tmp_path / "model.onnx", Quantization("static-int8"), [feeds(8000)]
    )
    assert [each.code for each in findings] == ["Q101"]

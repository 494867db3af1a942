"""The 4-bit quantizer gets one weight at a time, and the model keeps none of them in memory."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from convkit.protocol.messages import Quantization
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.precision.quantization.preparation import (
    PreparedGraph,
    return_weights,
    save_without_weights,
)
from convkit.worker.precision.quantization.quantizers import run_quantizer
from convkit.worker.precision.quantization.weight_by_weight import WeightByWeight

LAYERS, WIDTH = 4, 96


@pytest.fixture
def prepared(tmp_path):
    drawn = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(drawn.standard_normal((WIDTH, WIDTH), np.float32), f"w{each}")
        for each in range(LAYERS)
    ]
    nodes = [
        onnx.helper.make_node("MatMul", [f"x{each}", f"w{each}"], [f"x{each + 1}"], f"n{each}")
        for each in range(LAYERS)
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", WIDTH])
        for name in ("x0", f"x{LAYERS}")
    ]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10
    )
    return save_without_weights(ir.from_proto(model), tmp_path)


def held(model):
    """Return the bytes of weights that a model holds itself."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


class Doubling:
    """Adds twice a node's weight, and notes what the model holds at that moment."""

    def __init__(self, model):
        self.model, self.held = model, []

    def quantize(self, node, graph_stack):
        (weight,) = graph_stack[-1].initializer
        self.held.append(held(self.model))
        doubled = 2 * numpy_helper.to_array(weight)
        graph_stack[-1].initializer.append(numpy_helper.from_array(doubled, f"{weight.name}.twice"))
        return [node]


def test_one_weight_is_in_memory_at_a_time(prepared):
    folder = prepared.file.parent
    model = onnx.load(prepared.file, load_external_data=False)
    doubling = Doubling(model)
    with (folder / "results").open("wb") as results:
        by_weight = WeightByWeight(doubling, prepared.weights, results)
        for node in list(model.graph.node):
            by_weight.quantize(node, [model.graph])
    assert doubling.held == [0] * LAYERS
    assert held(model) == 0
    onnx.save(model, folder / "doubled.onnx")
    doubled = load_model(folder / "doubled.onnx")
    return_weights(doubled, prepared)
    found = doubled.graph.initializers
    for each in range(LAYERS):
        once, twice = (found[name].const_value.numpy() for name in (f"w{each}", f"w{each}.twice"))
        assert (twice == 2 * once).all()


def test_weights_are_read_when_they_are_needed_and_not_written(prepared):
    assert sorted(prepared.weights) == [f"w{each}" for each in range(LAYERS)]
    assert [file.name for file in prepared.file.parent.iterdir()] == [prepared.file.name]
    assert prepared.file.stat().st_size < 4 * WIDTH * WIDTH


def quantized(prepared, destination, quantization):
    """Return the bytes of a quantized model's weights, by name."""
    run_quantizer(prepared, destination, quantization, [], [])
    model = load_model(destination)
    return_weights(model, prepared)
    weights = model.graph.initializers
    return {name: value.const_value.tobytes() for name, value in weights.items()}


def with_weights(prepared):
    """Return a model that holds its weights itself, which the quantizer reads without help."""
    model = load_model(prepared.file)
    return_weights(model, prepared)
    whole = prepared.file.with_name("whole")
    whole.mkdir()
    ir.save(model, whole / "float32.onnx")
    return PreparedGraph(whole / "float32.onnx", {})


@pytest.mark.parametrize("form", ["operators", "qdq"])
def test_the_weights_are_those_of_the_whole_model(prepared, monkeypatch, form):
    quantization = Quantization("int4-weights", block_size=32, format=form)
    folder = prepared.file.parent
    by_weight = quantized(prepared, folder / "by_weight.onnx", quantization)
    whole = quantized(with_weights(prepared), folder / "whole.onnx", quantization)
    assert by_weight == whole
    assert len(whole) > LAYERS


def test_a_node_without_such_a_weight_is_left_to_the_quantizer(tmp_path):
    asked = []

    class Quantizer:
        def quantize(self, node, graph_stack):
            asked.append(len(graph_stack))
            return [node]

    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    with (tmp_path / "results").open("wb") as results:
        by_weight = WeightByWeight(Quantizer(), {}, results)
        assert by_weight.quantize(node, [onnx.GraphProto()]) == [node]
    assert asked == [1]

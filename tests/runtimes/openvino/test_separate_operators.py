"""Operators that OpenVINO refuses together with others, and not by themselves."""

import numpy as np
import onnx
import openvino
import pytest
from ir_models import HEADER
from small_graphs import save, tensor
from stage_requests import build_request

from convkit.protocol.contract import Axis, Contract
from convkit.runtimes.openvino import build, session
from convkit.runtimes.openvino.ir import read_graph
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.separate_operators import kinds_to_separate, separable, separate
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.distinct_operators import write_operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError

PERCEPTRON = Contract(
    inputs=(tensor("x", shape=("batch", 16)),),
    outputs=(tensor("y", shape=("batch", 4)),),
    axes=(Axis("batch", 1, 3, 8),),
)


def perceptron(folder, activation="Mish"):
    text = (
        f"{HEADER}g (float[batch,16] x) => (float[batch,4] y) {{"
        " a = MatMul(x, W) b = Add(a, V)"
        f" r = {activation}(b) c = MatMul(r, U) y = Add(c, T) }}"
    )
    file = save(folder, text, carries=PERCEPTRON)
    model = onnx.load(file)
    random = np.random.default_rng(0)
    for name, shape in {"W": (16, 64), "V": (64,), "U": (64, 4), "T": (4,)}.items():
        weight = random.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
    onnx.save(model, file)
    write_operators(graph_operators(load_model(file)), folder)
    return file


def outputs(model, feeds):
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return next(iter(compiled(feeds).values()))


@pytest.mark.parametrize("activation", ["Mish", "Sigmoid", "Elu", "HardSwish"])
def test_an_operator_computes_the_same_separately(tmp_path, activation):
    file = perceptron(tmp_path, activation)
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)}
    plain, separated = read_graph(file), read_graph(file)
    (kind,) = separable(separated)
    separate(separated, [kind])
    kinds = [node.get_type_name() for node in separated.get_ordered_ops()]
    assert kinds.count("Reshape") == 2
    assert np.abs(outputs(plain, feeds) - outputs(separated, feeds)).max() <= 1e-5


class TestKinds:
    """The search, with a compiler that refuses some operators beside others."""

    def read(self, folder):
        file = perceptron(folder, "Mish")
        return lambda: read_graph(file)

    def refusing(self, *kinds):
        def compiled(model):
            for node in model.get_ordered_ops():
                above = node.input_values()
                chained = above and above[0].get_node().get_type_name() != "Reshape"
                if node.get_type_name() in kinds and chained:
                    raise ModelRefusedError(f"no code for {node.get_type_name()}")

        return compiled

    def test_the_kind_that_is_refused_is_found(self, tmp_path):
        found = kinds_to_separate(self.read(tmp_path), self.refusing("Mish"), "no code for Mish")
        assert found == ("Mish",)

    def test_a_refusal_that_separating_does_not_mend_stands(self, tmp_path):
        found = kinds_to_separate(
            self.read(tmp_path), self.refusing("MatMul"), "no code for MatMul"
        )
        assert found == ()


def test_a_chain_that_the_plugin_has_no_code_for_is_built(tmp_path, monkeypatch):
    # Whether the plugin has code for the chain depends on the processor: the result must not.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    exported, output = tmp_path / "export", tmp_path / "ir"
    exported.mkdir()
    output.mkdir()
    file = perceptron(exported)
    request = build_request(exported, options=OpenVINOOptions(), contract=PERCEPTRON)
    _, findings = build.run(request, Context(output))
    assert not [each for each in findings if each.is_error]
    try:
        session.OpenVINOSession(read_graph(file), OpenVINOOptions())
    except ModelRefusedError:
        (found,) = findings
        assert found.code == "E308"
        assert "Mish together with" in found.message
        assert found.place.node == "node_r"
    feeds = {"x": np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)}
    opened = session.open(output / session.MODEL_FILE, "cpu", OpenVINOOptions())
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert np.abs(opened.run(feeds)["y"] - outputs(read_graph(file), feeds)).max() <= 1e-5


def test_what_is_separated_is_told(tmp_path, monkeypatch):
    plain = session._compile

    def compiled(model, *given, **named):
        for node in model.get_ordered_ops():
            above = node.get_input_size() and node.input_value(0).get_node().get_type_name()
            if node.get_type_name() == "Mish" and above != "Reshape":
                raise ModelRefusedError("no code for Mish")
        return plain(model, *given, **named)

    monkeypatch.setattr(session, "_compile", compiled)
    exported, output = tmp_path / "export", tmp_path / "ir"
    exported.mkdir()
    output.mkdir()
    perceptron(exported)
    request = build_request(exported, options=OpenVINOOptions(), contract=PERCEPTRON)
    _, (found,) = build.run(request, Context(output))
    assert (found.code, found.severity, found.place.node) == ("E308", "note", "node_r")
    assert found.evidence["separate"] == ["Mish"]

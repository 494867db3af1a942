"""Which operator crashes the process that opens a model, and what avoids it.

The small graph really crashes onnxruntime 1.31 in float16 at optimization level all: a Transpose of
the leading axes before a MatMul with constant weights.
"""

import json

import onnx
import onnx.parser
import pytest

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.messages import CrashRequest, LowPrecision, PrecisionRequest
from convkit.runtimes.onnxruntime.crash import OpeningSearch, run
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.onnxruntime.precision import _kept_to_open, _with_more
from convkit.worker.cause.graphs.deciding_node import DecidingNode, deciding_node
from convkit.worker.job_context import Context

GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
crashing (float[S,N,4] x) => (float[N,S,3] out)
<float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
  turned = Transpose<perm = [1, 0, 2]>(x)
  product = MatMul(turned, w)
  shifted = Sigmoid(product)
  out = Tanh(shifted)
}
"""


def save(path):
    model = onnx.parser.parse_model(GRAPH)
    for node in model.graph.node:
        node.name = f"{node.op_type}_node"
        entry = node.metadata_props.add()
        entry.key, entry.value = "convkit.module", f"layer.{node.op_type.lower()}"
    onnx.save(model, path)


def searched(tmp_path, low, level="all"):
    exported, out = tmp_path / "exported", tmp_path / "out"
    exported.mkdir()
    out.mkdir()
    save(exported / "model.onnx")
    request = CrashRequest(OnnxRuntimeOptions(optimization=level), low, str(exported))
    return run(request, Context(out))[1]


def test_the_operator_is_named_with_a_remedy_that_has_been_tried(tmp_path):
    [finding] = searched(tmp_path, LowPrecision("float16"))
    assert finding.code == "E321"
    assert "SIGSEGV" in finding.message
    assert finding.place.node == "MatMul_node"
    assert finding.evidence["opens_at"] == "extended"
    assert finding.evidence["proven"] is True
    assert finding.remedy is not None
    # The product's module in float32 crashes as well: what it reads decides.
    kept = {"default": "float16", "keep_float32": ["layer.transpose"]}
    assert finding.remedy.change == {"target.precision": kept}


@pytest.mark.parametrize(("low", "level"), [(None, "all"), (LowPrecision("float16"), "extended")])
def test_a_model_that_opens_has_no_finding(tmp_path, low, level):
    assert searched(tmp_path, low, level) == []


def test_cutting_a_graph_finds_the_operator_that_decides(tmp_path):
    save(tmp_path / "model.onnx")
    opened = []

    def survives(path):
        kinds = [node.op_type for node in onnx.load(path).graph.node]
        opened.append(kinds)
        return "Sigmoid" not in kinds

    found = deciding_node(tmp_path / "model.onnx", survives)
    assert found == DecidingNode("Sigmoid_node", "Sigmoid", "layer.sigmoid", ("layer.matmul",))
    assert len(opened) <= 3
    assert deciding_node(tmp_path / "model.onnx", lambda _: True) is None


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_whose_verification_crashes_says_why(tmp_path):
    save(tmp_path / "model.onnx")
    recipe = {
        "schema": 1,
        "name": "crashing",
        "model": {"onnx": "model.onnx"},
        "axes": {name: {"min": 1, "typical": 2, "max": 3} for name in ("S", "N")},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["S", "N", 4]}],
        "outputs": [{"name": "out", "dtype": "float32", "shape": ["N", "S", 3]}],
        "targets": {"half": {"runtime": "onnxruntime", "precision": "float16"}},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    options = RunOptions(
        tmp_path / "recipe.yaml", Home(tmp_path / "home"), toolchain="host", track=False
    )
    found = {finding.code: finding for finding in run_recipe(options).record.findings}
    assert {"E201", "E321"} <= found.keys()
    assert found["E321"].place.node == "MatMul_node"


@pytest.mark.parametrize(("code", "kept"), [(-11, ("layer.matmul",)), (1, ("layer.matmul",))])
def test_auto_keeps_what_the_runtime_does_not_open(tmp_path, monkeypatch, code, kept):
    """A runtime that crashes on products in float16, or refuses them."""
    for name in ("exported", "out"):
        (tmp_path / name).mkdir()
    save(tmp_path / "exported" / "model.onnx")

    def opened(_, file, level="all"):
        graph = onnx.load(file).graph
        has_product = any(node.op_type == "MatMul" for node in graph.node)
        is_low = any(each.data_type == onnx.TensorProto.FLOAT16 for each in graph.initializer)
        return code if has_product and is_low and level == "all" else 0

    monkeypatch.setattr(OpeningSearch, "opened", opened)
    auto, found = LowPrecision("float16", "auto"), LowPrecision("float16")
    request = PrecisionRequest(
        Contract((), (), ()),
        OnnxRuntimeOptions(),
        auto,
        reference="",
        limits={},
        exported=str(tmp_path / "exported"),
    )
    assert _kept_to_open(request, found, Context(tmp_path / "out")) == kept
    decided = Finding("N208", "nothing", remedy=Remedy("Write it."))
    more = _with_more(decided, found.keeping(kept), kept)
    assert more.message.endswith("because onnxruntime does not open the model without")
    assert more.remedy.change["target.precision"]["keep_float32"] == list(kept)


def test_a_crash_across_modules_is_avoided_by_the_one_before_alone(tmp_path, monkeypatch):
    """A runtime that crashes on a Transpose in float16 before a product of any type."""
    for name in ("exported", "out"):
        (tmp_path / name).mkdir()
    save(tmp_path / "exported" / "model.onnx")

    def opened(_, file, level="all"):
        graph = onnx.shape_inference.infer_shapes(onnx.load(file)).graph
        known = [*graph.input, *graph.value_info]
        types = {each.name: each.type.tensor_type.elem_type for each in known}
        is_low = {
            node.op_type: types.get(node.input[0]) == onnx.TensorProto.FLOAT16
            for node in graph.node
        }
        crashes = is_low.get("Transpose", False) and "MatMul" in is_low
        return -11 if crashes and level == "all" else 0

    monkeypatch.setattr(OpeningSearch, "opened", opened)
    found = LowPrecision("float16")
    request = CrashRequest(OnnxRuntimeOptions(), found, str(tmp_path / "exported"))
    search = OpeningSearch(request, tmp_path / "model.onnx")
    search.find()
    assert (search.is_avoided, search.kept) == (True, ("layer.transpose",))


NORMALIZED = """
<ir_version: 8, opset_import: ["" : 18]>
normalized (float[S,4] x) => (float[S,4] out)
<float[4] w = {1,2,3,4}, int64[1] axes = {-1}, float two = {2}, float eps = {0.00001}> {
  sum = Add(x, x)
  mean = ReduceMean(sum, axes)
  apart = Sub(sum, mean)
  squared = Pow(apart, two)
  variance = ReduceMean(squared, axes)
  shifted = Add(variance, eps)
  root = Sqrt(shifted)
  scaled = Div(apart, root)
  weighed = Mul(scaled, w)
  biased = Add(weighed, w)
  out = Identity(biased)
}
"""


def test_a_fusion_that_reaches_into_the_root_is_opened_with_its_operations_in_float32(tmp_path):
    """onnxruntime 1.31 fuses a normalization that is written out with the cast before it, and then
    refuses float16 beside float32.
    """
    for name in ("exported", "out"):
        (tmp_path / name).mkdir()
    model = onnx.parser.parse_model(NORMALIZED)
    for node in model.graph.node:
        node.name = f"node_{node.output[0]}"
        if node.output[0] not in ("sum", "out"):
            entry = node.metadata_props.add()
            entry.key, entry.value = "convkit.module", "norm"
    onnx.save(model, tmp_path / "exported" / "model.onnx")
    request = PrecisionRequest(
        Contract((), (), ()),
        OnnxRuntimeOptions(),
        LowPrecision("float16", "auto"),
        reference="",
        limits={},
        exported=str(tmp_path / "exported"),
    )
    found = LowPrecision("float16", ("norm",))
    assert _kept_to_open(request, found, Context(tmp_path / "out")) == (".",)

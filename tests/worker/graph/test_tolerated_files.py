"""Files that onnxruntime runs, though onnx-ir or ONNX's checker would not take them as they are."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Source
from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_session import open_graph
from convkit.worker.graph.lint.check_registry import lint
from convkit.worker.graph.lint.onnx_checker import check_types
from convkit.worker.graph.typed_graph import UntypedValueError, prepare
from convkit.worker.precision.lowering.graph_conversion import convert_file
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan
from convkit.worker.reference.original_model import OnnxOriginal
from convkit.worker.runtime_interface.sessions import ModelRefusedError

X = np.array([[1, 2, 3]], np.float32)


def saved(folder: Path, text: str, opset: int = 17) -> Path:
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(header + text), path)
    return path


@pytest.mark.parametrize("indices", [[1, 3], [[0, 1], [1, 1]]], ids=["flat", "by-axis"])
@pytest.mark.parametrize("apart", [False, True], ids=["inside", "external"])
def test_sparse_weights_become_dense(tmp_path, indices, apart):
    path = saved(tmp_path, "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }")
    model = onnx.load(path)
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    places = numpy_helper.from_array(np.array(indices, np.int64), "places")
    if apart:
        (tmp_path / "weights.bin").write_bytes(values.raw_data)
        onnx.external_data_helper.set_external_data(values, "weights.bin")
        values.ClearField("raw_data")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [3, 2]))
    onnx.save(model, path)
    loaded = load_graph(path)
    weight = loaded.graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy().tolist() == [[0, 5], [0, 7], [0, 0]]
    if not apart:  # onnxruntime reads no external values of sparse weights
        ir.save(loaded, tmp_path / "dense.onnx")
        theirs, ours = (open_graph(each).run({"x": X}) for each in (path, tmp_path / "dense.onnx"))
        np.testing.assert_array_equal(theirs["y"], ours["y"])


def test_a_graph_without_a_name_is_fine(tmp_path):
    path = saved(tmp_path, "g (float[1,3] x) => (float[1,3] y) { y = Exp(x) }")
    model = onnx.load(path)
    model.graph.name = ""
    onnx.save(model, path)
    assert [finding for finding in lint(path) if finding.is_error] == []
    assert load_graph(path).graph.name == "graph"


def test_outputs_of_any_rank_are_fine(tmp_path):
    path = saved(tmp_path, "g (float[1,3] x) => (float[1,3] y) { y = Exp(x) }")
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    assert [finding for finding in lint(path) if finding.is_error] == []
    assert load_graph(path).graph.outputs[0].shape is None
    model.graph.output[0].ClearField("type")
    onnx.save(model, path)
    assert "E238" in [finding.code for finding in lint(path)]


def test_a_scalar_stays_a_scalar(tmp_path):
    path = saved(tmp_path, "g (float x) => (float y) { y = Exp(x) }")
    contract = Contract((TensorSpec("x", "float32", ()),), (TensorSpec("y", "float32", ()),), ())
    original = OnnxOriginal(Source("onnx", path=str(path)), contract)
    assert original.run({"x": np.array(0, np.float32)})["y"].shape == ()


def test_experimental_operators_are_no_error_in_opsets_in_which_onnxruntime_runs_them(tmp_path):
    text = "g (float[1,3] x) => (float[1,3] y) { y = ScaledTanh<alpha=2.0, beta=1.0>(x) }"
    early = saved(tmp_path, text, opset=9)
    assert [finding for finding in lint(early) if finding.is_error] == []
    np.testing.assert_allclose(open_graph(early).run({"x": X})["y"], 2 * np.tanh(X), 1e-5)
    late = saved(tmp_path, text, opset=17)
    assert [finding.code for finding in lint(late) if finding.is_error] == ["E233"]
    with pytest.raises(ModelRefusedError, match="ScaledTanh"):
        open_graph(late)
    other = saved(tmp_path, text.replace("ScaledTanh", "ScaledTangent"), opset=9)
    assert "E233" in [finding.code for finding in lint(other)]


def test_a_file_of_other_domains_imports_onnx_s_own(tmp_path):
    text = """<ir_version: 3, opset_import: ["ai.onnx.ml" : 1]>
    g (float[1,3] x) => (float[1,3] y) { y = ai.onnx.ml.Normalizer<norm="L1">(x) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    assert load_graph(path).opset_imports == {"ai.onnx.ml": 1, "": 8}


def test_an_unread_output_needs_no_type(tmp_path):
    """ONNX infers no type for the mask of Dropout before opset 10."""
    text = "g (float[1,3] x) => (float[1,3] z) { y, mask = Dropout<ratio=0.5>(x)\n z = Exp(y) }"
    typed = prepare(load_graph(saved(tmp_path, text, opset=7)))
    assert [value.name for value in typed.graph[0].outputs] == ["y", ""]
    read = text.replace("Exp(y)", "Where(mask, y, y)")
    with pytest.raises(UntypedValueError, match="mask"):
        prepare(load_graph(saved(tmp_path, read, opset=7)))


def test_an_operator_of_onnxruntime_s_optimizer_converts_before_onnx_has_it(tmp_path):
    path = saved(
        tmp_path,
        "g (float[1,3] x, float[3] s) => (float[1,3] y) { y = LayerNormalization(x, s) }",
        opset=12,
    )
    assert [finding for finding in lint(path) if finding.is_error] == []
    half = tmp_path / "half.onnx"
    convert_file(prepare(load_model(path)), half, PrecisionPlan(default="float16"))
    feeds = {"x": X, "s": np.ones(3, np.float32)}
    expected, found = (open_graph(each).run(feeds)["y"] for each in (path, half))
    np.testing.assert_allclose(expected, [[-1.2247, 0, 1.2247]], atol=1e-3)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    with pytest.raises(onnx.checker.ValidationError):  # nothing else is let through
        check_types(saved(tmp_path, "g (float[1] x) => (float[1] y) { y = Unheard(x) }"))


def test_a_weight_that_is_described_twice_keeps_its_shape(tmp_path):
    """Exporters list weights among the intermediate values, too: with that shape cleared, onnx's
    inference takes the slice below for one along all axes.
    """
    text = """g (float[1,4,6] x) => (float[1,2,6] y)
        <float[1,2,6] w, int64[1] start = {0}, int64[1] end = {2}, int64[1] axis = {1},
         int64[3] to = {1,4,6}> {
        r = Reshape(x, to) s = Slice(r, start, end, axis) y = Sub(w, s) }"""
    model = onnx.load(saved(tmp_path, text))
    weight = onnx.numpy_helper.from_array(np.ones((1, 2, 6), np.float32), "w")
    model.graph.initializer.append(weight)
    described = {"start": [1], "end": [1], "axis": [1], "to": [3]}
    heavy = tmp_path / "heavy.onnx"
    onnx.save(model, heavy, save_as_external_data=True, location="w.data", size_threshold=40)
    model = onnx.load(heavy, load_external_data=False)
    del model.graph.value_info[:]
    for name, shape in described.items():
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, shape)
        model.graph.value_info.append(value)
    heavy.write_bytes(model.SerializeToString())
    check_types(heavy)
    assert {value.name for value in onnx.load(heavy).graph.value_info} == set(described)

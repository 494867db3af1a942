import functools

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
from onnx import numpy_helper

from convkit.worker.graph import graph_files
from convkit.worker.graph.duplicate_weights import duplicate_weights
from convkit.worker.graph.graph_files import save_model, write_model
from convkit.worker.graph.graph_session import open_graph

WEIGHTS = {
    "zebra": np.arange(200, dtype=np.float32),
    "ape": np.arange(20_000, dtype=np.float32).reshape(100, 200),
    "mouse": np.float32([1, 2]),
}


def model_with_weights():
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "zebra"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 200])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 200])],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    return onnx_ir.from_proto(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    )


@pytest.fixture
def written(tmp_path):
    write_model(model_with_weights(), tmp_path)
    return tmp_path


def external(folder):
    tensors = onnx.load(folder / "model.onnx", load_external_data=False).graph.initializer
    return {t.name: {entry.key: entry.value for entry in t.external_data} for t in tensors}


def test_weights_lie_in_one_file_sorted_and_aligned(written):
    assert sorted(path.name for path in written.iterdir()) == ["model.onnx", "model.onnx.data"]
    places = external(written)
    assert places["mouse"] == {}
    assert {place["location"] for name, place in places.items() if name != "mouse"} == {
        "model.onnx.data"
    }
    assert int(places["ape"]["offset"]) == 0
    assert int(places["zebra"]["offset"]) >= 80_000
    assert int(places["zebra"]["offset"]) % 64 == 0


def test_the_values_are_what_they_were(written):
    onnx.checker.check_model(str(written / "model.onnx"), full_check=True)
    tensors = {each.name: each for each in onnx.load(written / "model.onnx").graph.initializer}
    assert tensors.keys() == WEIGHTS.keys()
    for name, tensor in tensors.items():
        assert np.array_equal(numpy_helper.to_array(tensor), WEIGHTS[name])


def test_the_same_model_gives_the_same_bytes(written, tmp_path):
    (tmp_path / "again").mkdir()
    write_model(model_with_weights(), tmp_path / "again")
    for name in ("model.onnx", "model.onnx.data"):
        assert (written / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_without_weights_there_is_no_data_file(tmp_path):
    model = model_with_weights()
    for name in ("ape", "zebra"):
        model.graph.initializers[name].const_value = onnx_ir.tensor(np.float32([1]), name=name)
    write_model(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("block", [1, 1000, 2**20])
@pytest.mark.parametrize(
    "view",
    [
        np.arange(201 * 130, dtype=np.float32).reshape(201, 130).T,
        np.arange(201 * 130, dtype=np.float16).reshape(201, 130)[::2, ::-1],
        np.arange(30 * 20 * 7, dtype=np.int64).reshape(30, 20, 7).transpose(2, 0, 1),
        np.arange(201 * 130).reshape(201, 130).astype(ml_dtypes.bfloat16).T,
        np.arange(900, dtype=np.float32)[::3],
    ],
    ids=["transposed", "strided", "three axes", "bfloat16", "one axis"],
)
def test_a_view_is_written_as_its_elements(tmp_path, monkeypatch, view, block):
    monkeypatch.setattr(graph_files, "_BLOCK_BYTES", block)
    model = model_with_weights()
    model.graph.initializers["ape"].const_value = onnx_ir.Tensor(view, name="ape")
    write_model(model, tmp_path)
    place = external(tmp_path)["ape"]
    data = (tmp_path / "model.onnx.data").read_bytes()
    offset, length = int(place["offset"]), int(place["length"])
    assert data[offset : offset + length] == view.tobytes()


def test_texts_stay_in_the_graph_file(tmp_path):
    words = [f"word number {place}".encode() for place in range(300)]
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[n] ids) => (string[n] word, float[n] score) {
        word = Gather<axis=0>(words, ids)
        score = Gather<axis=0>(scores, ids)
    }"""
    model = onnx.parser.parse_model(text)
    for name in ("words", "again"):
        tensor = onnx.helper.make_tensor(name, onnx.TensorProto.STRING, [300], words)
        model.graph.initializer.append(tensor)
    scores = np.arange(300, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(scores, "scores"))
    read = onnx_ir.from_proto(model)
    assert duplicate_weights(read) == []
    write_model(read, tmp_path)
    assert set(filter(external(tmp_path).get, external(tmp_path))) == {"scores"}
    found = open_graph(tmp_path / "model.onnx").run({"ids": np.array([299, 0])})
    assert found["word"].tolist() == ["word number 299", "word number 0"]
    assert found["score"].tolist() == [299, 0]


@pytest.mark.parametrize("writer", ["write_model", "save_model"])
def test_runtimes_read_the_sizes_that_a_tensor_is_split_by(tmp_path, writer):
    parts = 48
    node = onnx.helper.make_node("Split", ["x", "sizes"], [f"y{i}" for i in range(parts)], axis=0)
    value = functools.partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    graph = onnx.helper.make_graph(
        [node],
        "split",
        [value("x", shape=[parts])],
        [value(f"y{i}", shape=[1]) for i in range(parts)],
        [onnx.numpy_helper.from_array(np.ones(parts, np.int64), "sizes")],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx_ir.from_proto(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8))
    if writer == "write_model":
        write_model(model, tmp_path)
    else:
        save_model(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    outputs = session.run(None, {"x": np.arange(parts, dtype=np.float32)})
    assert np.array_equal(np.concatenate(outputs), np.arange(parts))

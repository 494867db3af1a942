import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from convkit.host.store.external_weight_files import external_files
from convkit.protocol.errors import ModelFileError


def save(folder, location):
    weights = [
        numpy_helper.from_array(np.arange(500, dtype=np.float32) + i, f"w{i}") for i in range(3)
    ]
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [500])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["w0", "w1"], ["y"])], "g", [], [y], weights
    )
    (folder / location).parent.mkdir(exist_ok=True)
    path = folder / "net.onnx"
    onnx.save(
        onnx.helper.make_model(graph),
        path,
        save_as_external_data=True,
        location=location,
        size_threshold=0,
    )
    return path


@pytest.mark.parametrize("location", ["net.onnx.data", "weights.bin", "below/w", "é" * 90])
def test_the_file_of_the_weights_is_found_whatever_its_name(tmp_path, location):
    assert external_files(save(tmp_path, location)) == [tmp_path / location]


def test_files_that_are_not_there_and_files_without_weights(tmp_path):
    path = save(tmp_path, "weights.bin")
    (tmp_path / "weights.bin").unlink()
    assert external_files(path) == []
    path.write_bytes(b"")
    assert external_files(path) == []


@pytest.mark.parametrize("way", ["above", "absolute", "link", "linked folder"])
def test_a_file_outside_the_model_s_folder_is_refused(tmp_path, way):
    """Or a crafted model makes the host send any file of its to the shared store."""
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    folder = tmp_path / "model"
    folder.mkdir()
    path = save(folder, "weights.bin")
    location = {"above": "../secret", "absolute": str(secret), "linked folder": "away/secret"}
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location.get(way, "weights.bin")
    onnx.save(proto, path)
    if way == "link":
        (folder / "weights.bin").unlink()
        (folder / "weights.bin").symlink_to(secret)
    (folder / "away").symlink_to(tmp_path)
    with pytest.raises(ModelFileError, match="outside the model's folder"):
        external_files(path)


def test_bytes_that_merely_look_like_an_entry_are_passed_over(tmp_path):
    path = tmp_path / "net.onnx"
    for value in (b"\xff\xfe", b"a\0b", b"/no/such/file", b"cut short"):
        path.write_bytes(
            b"\n\x08location\x12" + bytes([len(value) + 2 * (value == b"cut short")]) + value
        )
        assert external_files(path) == []

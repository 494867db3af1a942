import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from convkit.store.external_files import external_files


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


def test_bytes_that_merely_look_like_an_entry_are_passed_over(tmp_path):
    path = tmp_path / "net.onnx"
    for value in (b"\xff\xfe", b"a\0b", b"/etc/passwd", b"cut short"):
        path.write_bytes(
            b"\n\x08location\x12" + bytes([len(value) + 2 * (value == b"cut short")]) + value
        )
        assert external_files(path) == []

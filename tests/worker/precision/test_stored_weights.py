import os

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from convkit.worker.graph.graph_loading import load_model
from convkit.worker.job_context import StageFailedError

WEIGHTS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "h": np.arange(4, dtype=np.float16),
    "n": np.array(7, np.int64),
}


def stored(folder, location="model.onnx.data"):
    """Save a model with external weights, and a hard link beside the weights, as the store has."""
    folder.mkdir()
    graph = onnx.helper.make_graph(
        [],
        "g",
        [],
        [],
        [
            *(onnx.numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()),
            onnx.helper.make_tensor("packed", onnx.TensorProto.INT4, [3], np.array([1, -2, 7])),
        ],
    )
    onnx.save(
        onnx.helper.make_model(graph, ir_version=10),
        folder / "model.onnx",
        save_as_external_data=True,
        location=location,
        size_threshold=0,
        convert_attribute=True,
    )
    os.link(folder / location, folder.parent / "object")
    return folder / "model.onnx"


def test_weights_behind_hard_links_are_read(tmp_path):
    file = stored(tmp_path / "view")
    with pytest.raises(ValueError, match="hard links"):
        ir.load(file).graph.initializers["w"].const_value.numpy()  # the reason for this loader
    found = {name: value.const_value for name, value in load_model(file).graph.initializers.items()}
    for name, array in WEIGHTS.items():
        np.testing.assert_array_equal(found[name].numpy(), array)
        assert found[name].numpy().dtype == array.dtype
    assert found["packed"].numpy().astype(int).tolist() == [1, -2, 7]


def test_weights_outside_the_folder_are_refused(tmp_path):
    file = stored(tmp_path / "view")
    text = file.read_bytes()
    file.write_bytes(text.replace(b"model.onnx.data", b"../x/onnx.dataa"))
    with pytest.raises(StageFailedError, match="outside the model's folder"):
        load_model(file)

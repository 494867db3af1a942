import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper

from convkit.worker.graph.external_data import external_data_findings
from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.graph.graph_files import write_model


@pytest.fixture
def written(tmp_path):
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "zebra"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 200])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 200])],
        [
            numpy_helper.from_array(np.arange(20_000, dtype=np.float32).reshape(100, 200), "ape"),
            numpy_helper.from_array(np.arange(200, dtype=np.float32), "zebra"),
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    write_model(onnx_ir.from_proto(model), tmp_path)
    return tmp_path


def entries(folder, key, change):
    """Change one entry of every weight's place."""
    proto = onnx.load(folder / "model.onnx", load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = change(entry.value)
    onnx.save(proto, folder / "model.onnx")


def link_away(folder):
    outside = folder.parent / f"{folder.name}-outside.data"
    (folder / "model.onnx.data").rename(outside)
    (folder / "model.onnx.data").symlink_to(outside)


def test_whole_weights_pass(written):
    assert external_data_findings(load_graph(written / "model.onnx"), written) == []


@pytest.mark.parametrize(
    ("damage", "weight", "message", "remedy"),
    [
        (
            lambda folder: (folder / "model.onnx.data").unlink(),
            "ape",
            "'model.onnx.data' is missing",
            "beside",
        ),
        (
            lambda folder: entries(folder, "location", lambda _: "../model.onnx.data"),
            "ape",
            "outside",
            "beside",
        ),
        (
            lambda folder: entries(folder, "location", lambda _: "/etc/passwd"),
            "ape",
            "outside",
            "beside",
        ),
        (link_away, "ape", "points outside the model's folder", "beside"),
        (
            lambda folder: (folder / "model.onnx.data").write_bytes(b"\0" * 80_100),
            "zebra",
            "truncated: weight 'zebra' ends at byte 80",
            "again, completely",
        ),
        (
            lambda folder: entries(folder, "length", lambda length: str(int(length) - 4)),
            "ape",
            "79996 bytes in 'model.onnx.data', but its shape and type need 80000",
            "again, completely",
        ),
        (
            lambda folder: entries(folder, "offset", lambda offset: str(int(offset) + 8_000_000)),
            "ape",
            "begins at byte 8000000 of 'model.onnx.data'",
            "again, completely",
        ),
    ],
)
def test_a_file_that_is_not_whole_is_named_with_the_first_weight_it_concerns(
    written, damage, weight, message, remedy
):
    damage(written)
    (finding,) = external_data_findings(load_graph(written / "model.onnx"), written)
    assert (finding.code, finding.severity, finding.place.tensor) == ("E210", "error", weight)
    assert message in finding.message
    assert remedy in finding.remedy.text


def test_weights_that_share_some_of_their_bytes(written):
    proto = onnx.load(written / "model.onnx", load_external_data=False)
    (entry,) = (
        entry
        for tensor in proto.graph.initializer
        if tensor.name == "zebra"
        for entry in tensor.external_data
        if entry.key == "offset"
    )
    entry.value = str(int(entry.value) - 4096)
    onnx.save(proto, written / "model.onnx")
    (finding,) = external_data_findings(load_graph(written / "model.onnx"), written)
    assert (finding.code, finding.place.tensor) == ("E210", "zebra")
    assert "'ape' and 'zebra' overlap" in finding.message

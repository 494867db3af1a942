"""A list of maps from class to probability becomes a table with the same numbers."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_classifiers import FLOWERS, classifier

from convkit.worker.graph.class_labels import columns_of, maps_as_tables
from convkit.worker.graph.graph_contract import load_graph, read_contract
from convkit.worker.graph.graph_session import as_array, open_graph
from convkit.worker.runtime_interface.sessions import RunFailedError


def test_the_table_has_what_the_maps_have_class_by_class(tmp_path: Path) -> None:
    """The classes are not in order: "rose" is the classifier's first column, and the table's
    second.
    """
    path = classifier(tmp_path, FLOWERS)
    feeds = {"x": np.array([[3, 0], [0, 3], [0.5, 0.4]], np.float32)}
    session = open_graph(path)
    maps = session.raw.run(["chances"], feeds)[0]
    of_file = session.run(feeds)
    ir.save(load_graph(path), tmp_path / "tables.onnx")
    tables = open_graph(tmp_path / "tables.onnx").run(feeds)
    assert of_file["label"].tolist() == tables["label"].tolist() == ["rose", "lily", "rose"]
    for row, chances in enumerate(maps):
        assert tables["chances"][row].tolist() == [chances["lily"], chances["rose"]]
    np.testing.assert_array_equal(of_file["chances"], tables["chances"])


def test_a_contract_has_texts_and_tables(tmp_path: Path) -> None:
    path = classifier(tmp_path, FLOWERS)
    contract = read_contract(path)
    assert [str(spec) for spec in contract.outputs] == [
        "label: string[rows]",
        "chances: float32[?, ?]",
    ]
    assert [spec.dtype for spec in open_graph(path).contract().outputs] == ["string", "float32"]


def test_the_columns_are_described_in_the_file(tmp_path: Path) -> None:
    model = load_graph(classifier(tmp_path, FLOWERS))
    assert columns_of(model.graph.outputs[1].doc_string) == "lily, rose"
    assert columns_of(model.graph.outputs[0].doc_string) is None


def test_many_classes_are_counted() -> None:
    node = onnx.helper.make_node(
        "ZipMap", ["scores"], ["chances"], domain="ai.onnx.ml", classlabels_int64s=range(100)
    )
    scores = onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [None, 100])
    output = onnx.helper.make_empty_tensor_value_info("chances")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [scores], [output]))
    maps_as_tables(model)
    assert [node.op_type for node in model.graph.node] == ["Identity"]
    described = columns_of(model.graph.output[0].doc_string) or ""
    assert described.startswith("0, 1, 2")
    assert described.endswith("and 88 more, in ascending order")


def test_other_lists_are_no_tensors() -> None:
    with pytest.raises(RunFailedError, match="a list, not a tensor"):
        as_array([np.zeros(2)])

import json

import onnx
import onnx_ir
import pytest
from tiny_models import BATCH, tensor

from convkit.protocol.contract import DTYPES, Contract
from convkit.protocol.json_codec import encode
from convkit.worker.graph.graph_contract import (
    carried_contract,
    carry_contract,
    load_graph,
    read_contract,
    rename_to_contract,
)
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION, UNKNOWN_RANK

GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (int64[batch, 3] a, float16[past_length, N] b, bool[2] c) => (float[batch, 3] y)
<float[2] weight = {1, 2}>
{ y = Cast<to = 1>(a) }
"""


def save(model, folder):
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def test_names_order_types_and_dimensions(tmp_path):
    found = read_contract(save(onnx.parser.parse_model(GRAPH), tmp_path))
    assert list(map(str, found.inputs)) == [
        "a: int64[batch, 3]",
        "b: float16[past_length, N]",
        "c: bool[2]",
    ]
    assert list(map(str, found.outputs)) == ["y: float32[batch, 3]"]
    assert found.axes == ()


def test_what_the_graph_leaves_open(tmp_path):
    model = onnx.parser.parse_model(GRAPH)
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = read_contract(save(model, tmp_path))
    assert found.inputs[0].shape == (UNKNOWN_DIMENSION, 3)
    assert found.outputs[0].shape == UNKNOWN_RANK


def test_an_input_that_is_returned_under_a_new_name_keeps_its_own(tmp_path):
    text = GRAPH.replace("(float[batch, 3] y)", "(float[batch, 3] y, bool[2] c)")
    path = save(onnx.parser.parse_model(text), tmp_path)
    model = load_graph(path)
    outputs = (tensor("y", "batch", 3), tensor("same", 2, dtype="bool", origin="c"))
    rename_to_contract(model, Contract(read_contract(path).inputs, outputs, (BATCH,)))
    onnx_ir.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    found = read_contract(path)
    assert [spec.name for spec in found.inputs] == ["a", "b", "c"]
    assert list(map(str, found.outputs)) == ["y: float32[batch, 3]", "same: bool[2]"]


def test_initializers_listed_as_inputs_are_none(tmp_path):
    model = onnx.parser.parse_model(GRAPH)
    model.graph.input.append(
        onnx.helper.make_tensor_value_info("weight", onnx.TensorProto.FLOAT, [2])
    )
    assert [spec.name for spec in read_contract(save(model, tmp_path)).inputs] == ["a", "b", "c"]


def test_weights_are_not_read(tmp_path):
    model = onnx.parser.parse_model(GRAPH)
    weight = model.graph.initializer[0]
    weight.ClearField("float_data")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not-there.bin")
    assert len(read_contract(save(model, tmp_path)).inputs) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 14),
            "elements of type complex64",
        ),
        (lambda model: model.graph.input[0].ClearField("type"), "has no type"),
        (
            lambda model: setattr(
                model.graph.input[0].type.sequence_type.elem_type.tensor_type, "elem_type", 1
            ),
            "is a sequence of tensors.*ConcatFromSequence",
        ),
    ],
)
def test_what_a_contract_cannot_hold(tmp_path, change, message):
    model = onnx.parser.parse_model(GRAPH)
    change(model)
    with pytest.raises(StageFailedError, match=message):
        read_contract(save(model, tmp_path))


def test_a_file_that_is_no_onnx(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"\xff\xfe not protobuf at all")
    with pytest.raises(StageFailedError, match=r"model\.onnx is not a readable ONNX file"):
        read_contract(tmp_path / "model.onnx")
    with pytest.raises(StageFailedError, match="there is no file"):
        read_contract(tmp_path / "none.onnx")


def test_the_contract_travels_in_the_metadata(tmp_path):
    path = save(onnx.parser.parse_model(GRAPH), tmp_path)
    assert carried_contract(path) is None
    contract = Contract(
        (tensor("a", "batch", 3, origin="b"),), (tensor("y", "batch", 3),), (BATCH,)
    )
    model = load_graph(path)
    carry_contract(model, contract)
    import onnx_ir

    onnx_ir.save(model, path)
    assert carried_contract(path) == contract.carried()
    text = next(
        entry.value for entry in onnx.load(path).metadata_props if entry.key == CONTRACT_KEY
    )
    assert json.loads(text) == encode(contract.carried())
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize("text", ["{", "[]", '{"inputs": [], "outputs": []}'])
def test_a_damaged_contract(tmp_path, text):
    model = onnx.parser.parse_model(GRAPH)
    model.metadata_props.add(key=CONTRACT_KEY, value=text)
    with pytest.raises(StageFailedError, match="carries a damaged contract"):
        carried_contract(save(model, tmp_path))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_its_onnx_type(dtype):
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    onnx_type = onnx_ir.DataType[names.get(dtype, dtype.upper())]
    assert contract_dtype(onnx_type) == dtype

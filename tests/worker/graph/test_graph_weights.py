import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from convkit.worker.graph import graph_weights
from convkit.worker.graph.graph_weights import (
    count_elements,
    lift_weights,
    name_transposed,
    share_weights,
    strip_wrapper,
)

RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(12, 16)).astype(np.float32)


def model_of(text, **weights):
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    proto.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return onnx_ir.from_proto(proto)


def outputs(model, **feeds):
    return ReferenceEvaluator(onnx_ir.to_proto(model)).run(None, feeds)


def tied(second):
    return model_of(
        "g (int64[n] ids) => (float[n, 12] logits) { h = Gather(embedding, ids) logits = MatMul(h,"
        " head) }",
        embedding=TABLE,
        head=second,
    )


def test_a_transposed_twin_becomes_a_transpose_of_the_embedding():
    model = tied(TABLE.T)
    before = outputs(model, ids=np.array([3, 5]))
    assert share_weights(model) == TABLE.nbytes
    assert list(model.graph.initializers) == ["embedding"]
    assert np.array_equal(outputs(model, ids=np.array([3, 5])), before)
    onnx.checker.check_model(onnx_ir.to_proto(model), full_check=True)


def test_almost_a_twin_stays():
    other = TABLE.T.copy()
    other[0, 0] += 1e-6
    model = tied(other)
    assert share_weights(model) == 0
    assert sorted(model.graph.initializers) == ["embedding", "head"]


def test_equal_weights_are_stored_once():
    model = model_of(
        "g (float[n, 12] x) => (float[n, 16] y) { a = MatMul(x, one) b = MatMul(x, two) y = Add(a,"
        " b) }",
        one=TABLE,
        two=TABLE,
    )
    x = RANDOM.normal(size=(2, 12)).astype(np.float32)
    before = outputs(model, x=x)
    assert share_weights(model) == TABLE.nbytes
    assert len(model.graph.initializers) == 1
    assert np.array_equal(outputs(model, x=x), before)


@pytest.mark.parametrize(
    "second",
    [TABLE.view(np.int32), TABLE.reshape(16, 12), TABLE.astype(np.float16)],
    ids=["type", "shape", "value"],
)
def test_equal_bytes_of_another_type_or_shape_are_no_twin(second):
    model = model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }", one=TABLE, two=second)
    assert share_weights(model) == 0


def test_a_symmetric_matrix_is_not_its_own_twin():
    symmetric = TABLE @ TABLE.T
    model = model_of("g (float[n, 12] x) => (float[n, 12] y) { y = MatMul(x, one) }", one=symmetric)
    assert share_weights(model) == 0


def test_a_weight_that_is_an_output_stays():
    text = "g (float[n, 12] x) => (float[n, 16] y, float[12, 16] two) { y = MatMul(x, one) }"
    model = model_of(text, one=TABLE, two=TABLE)
    assert share_weights(model) == 0


def test_the_wrappers_prefix_goes_unless_the_name_is_taken():
    names = {"model.b": TABLE, "model.x": TABLE + 1, "model.model.c": TABLE + 2, "other": TABLE + 3}
    model = model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }", **names)
    strip_wrapper(model, "model")
    assert list(model.graph.initializers) == ["b", "model.c", "model.x", "other"]
    assert all(name == value.const_value.name for name, value in model.graph.initializers.items())


def test_transposed_weights_are_named_after_the_originals():
    text = (
        "g (float[n, 16] x) => (float[n, 12] y) { a = MatMul(x, val_7) b = MatMul(x, val_8) y ="
        " Add(a, b) }"
    )
    model = model_of(text, val_7=TABLE.T, val_8=TABLE.T + 1)
    name_transposed(model, {"head.weight": torch.from_numpy(TABLE), "head.bias": torch.zeros(3)})
    assert list(model.graph.initializers) == ["head.weight.T", "val_8"]
    assert model.graph[0].inputs[1].name == "head.weight.T"


def test_a_transposed_view_of_the_original_is_named_unread(monkeypatch):
    original = torch.from_numpy(TABLE)
    model = model_of("g (float[n, 16] x) => (float[n, 12] y) { y = MatMul(x, val_7) }", val_7=TABLE)
    view = onnx_ir.Tensor(original.numpy().T, name="val_7")
    model.graph.initializers["val_7"].const_value = view
    monkeypatch.setattr(graph_weights, "_torch_bytes", _only_samples)
    name_transposed(model, {"head.weight": original})
    assert list(model.graph.initializers) == ["head.weight.T"]


def _only_samples(tensor):
    assert tensor.numel() < TABLE.size
    return tensor.contiguous().view(torch.uint8).numpy()


def test_transposed_bfloat16_weights_are_named_too():
    weight = torch.from_numpy(TABLE).to(torch.bfloat16)
    model = model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }", val_1=TABLE.T)
    array = weight.T.contiguous().view(torch.int16).numpy()
    tensor = onnx_ir.Tensor(array.view("uint16"), dtype=onnx_ir.DataType.BFLOAT16, name="val_1")
    model.graph.initializers["val_1"].const_value = tensor
    name_transposed(model, {"w": weight})
    assert list(model.graph.initializers) == ["w.T"]


def test_elements_are_counted():
    assert (
        count_elements(
            model_of("g (float[n] x) => (float[n] y) { y = Relu(x) }", a=TABLE, b=TABLE[0])
        )
        == 208
    )


def test_constants_count_in_nodes_and_in_bodies_too():
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x, bool b) => (float[4] y)
        <float[4] w = {1, 2, 3, 4}>
        {
            a = Constant<value_floats=[1.0, 2.0, 3.0, 4.0]>()
            s = Add(x, a)
            y = If (b) <
                then_branch = t () => (float[4] p) {
                    c = Constant<value_floats=[1.0, 2.0]>()
                    d = Concat<axis=0>(c, c)
                    p = Mul(s, d)
                },
                else_branch = e () => (float[4] q) { q = Mul(s, w) }>
        }"""
    )
    assert count_elements(onnx_ir.from_proto(model)) == 4 + 4 + 2


def test_weights_of_branches_move_to_the_main_graph_under_names_of_their_own():
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,16] x, bool b) => (float[n,16] y) {
            y = If (b) <
                then_branch = t () => (float[n,16] p) { p = MatMul(x, w) },
                else_branch = e () => (float[n,16] q) { q = MatMul(x, w) }>
        }"""
    )
    arrays = [np.full((16, 16), number, np.float32) for number in (1, 2)]
    for attribute, array in zip(model.graph.node[0].attribute, arrays, strict=True):
        attribute.g.initializer.append(numpy_helper.from_array(array, "w"))
    lifted = onnx_ir.from_proto(model)
    lift_weights(lifted)
    proto = onnx_ir.to_proto(lifted)
    onnx.checker.check_model(proto, full_check=True)
    assert len(proto.graph.initializer) == 2
    x = np.ones((1, 16), np.float32)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = [session.run(None, {"x": x, "b": np.array(b)})[0][0, 0] for b in (True, False)]
    assert found == [16, 32]


def test_a_column_whose_stride_says_nothing_is_named():
    """A layer with one output: its weight transposed has dimensions of 224 and 1, whose stride may
    be any.
    """
    row = torch.arange(224.0)[None]
    text = "g (float[n, 224] x) => (float[n, 1] y) { y = MatMul(x, val_7) }"
    model = model_of(text, val_7=row.T.contiguous().numpy())
    name_transposed(model, {"score.weight": row})
    assert list(model.graph.initializers) == ["score.weight.T"]

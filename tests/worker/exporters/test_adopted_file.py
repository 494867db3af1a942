from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tiny_models import BATCH, export_request, run_onnx, tensor, tokens

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample, Source
from convkit.worker.exporters.adopted_file import adopt as adopted
from convkit.worker.graph.graph_contract import carried_contract
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.export import run

TEXT = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "somebody">
g (float[batch_size, 4] x, float[batch_size, 80] bias) => (float[batch_size, 80] y) {
    h = MatMul(x, weight)
    y = Add(h, bias)
}
"""
WEIGHT = np.random.default_rng(0).normal(size=(4, 80)).astype(np.float32)
CONTRACT = Contract(
    (tensor("x", "batch", 4), tensor("bias", "batch", 80)), (tensor("y", "batch", 80),), (BATCH,)
)


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "weight"))
    model.metadata_props.add(key="author", value="somebody")
    onnx.save(
        model,
        folder / "net.onnx",
        save_as_external_data=True,
        location="net.weights",
        size_threshold=0,
    )
    return folder / "net.onnx"


def adopt(file, contract=CONTRACT, **changes):
    out = file.parent.parent / "artifact"
    out.mkdir()
    result, findings = run(
        export_request(Source("onnx", path=str(file)), contract, **changes), Context(out)
    )
    return result, findings, out


def test_a_file_is_taken_as_it_is(file):
    result, findings, out = adopt(file)
    assert findings == []
    assert (result.opset, result.parameters, result.example_sizes) == (17, 320, {})
    assert sorted(path.name for path in out.iterdir()) == [
        "model.onnx",
        "model.onnx.data",
        "operators.json",
    ]
    x, bias = np.ones((3, 4), np.float32), np.zeros((3, 80), np.float32)
    assert np.array_equal(run_onnx(out, {"x": x, "bias": bias})[0], run_onnx_file(file, x, bias))
    model = onnx.load(out / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Add"]
    assert (model.producer_name, model.metadata_props[0].value) == ("somebody", "somebody")
    assert carried_contract(out / "model.onnx") == CONTRACT.carried()


def test_a_file_is_converted_to_the_opset_that_is_asked_for(file):
    result, findings, out = adopt(file, opset=18)
    assert (result.opset, findings) == (18, [])
    x, bias = np.ones((3, 4), np.float32), np.zeros((3, 80), np.float32)
    np.testing.assert_allclose(
        run_onnx(out, {"x": x, "bias": bias})[0], run_onnx_file(file, x, bias)
    )


def test_weights_in_a_branch_may_lie_beside_the_file(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[batch,64] x, bool b) => (float[batch,64] y) {
        y = If (b) <
            then_branch = t () => (float[n,64] p) { p = MatMul(x, inner) },
            else_branch = e () => (float[n,64] q) { q = Relu(x) }>
    }"""
    model = onnx.parser.parse_model(text)
    inner = numpy_helper.from_array(np.full((64, 64), 2, np.float32), "inner")
    model.graph.node[0].attribute[0].g.initializer.append(inner)
    file = tmp_path / "theirs" / "net.onnx"
    file.parent.mkdir()
    onnx.save(model, file)
    specs = (tensor("x", "batch", 64), tensor("b", dtype="bool"))
    contract = Contract(specs, (tensor("y", "batch", 64),), (BATCH,))
    result, findings, out = adopt(file, contract, samples={"b": Sample("integers", (0, 2))})
    assert (findings, result.parameters) == ([], 4096)
    x = np.ones((2, 64), np.float32)
    assert (run_onnx(out, {"x": x, "b": np.array(True)})[0] == 128).all()


def run_onnx_file(file, x, bias):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "bias": bias})[0]


def test_dimensions_speak_the_contracts_words(file):
    result, _, _ = adopt(file)
    assert result.graph.inputs == CONTRACT.inputs


def test_the_weights_beside_the_result_are_its_own(file):
    _, _, out = adopt(file)
    (file.parent / "net.weights").unlink()
    assert np.array_equal(
        numpy_helper.to_array(onnx.load(out / "model.onnx").graph.initializer[0]), WEIGHT
    )


def codes(file, contract, **changes):
    return [finding.code for finding in adopt(file, contract, **changes)[1]]


def test_another_order_is_found_and_not_mended(file):
    swapped = Contract(CONTRACT.inputs[::-1], CONTRACT.outputs, CONTRACT.axes)
    result, findings, _ = adopt(file, swapped)
    assert [finding.code for finding in findings] == ["C103"]
    assert [spec.name for spec in result.graph.inputs] == ["x", "bias"]


def test_another_order_can_be_meant(file):
    swapped = Contract(CONTRACT.inputs[::-1], CONTRACT.outputs, CONTRACT.axes)
    assert codes(file, swapped, input_order="recipe") == []


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ((tensor("x", "batch", 4),), CONTRACT.outputs, ["C102"]),
        ((*CONTRACT.inputs, tensor("z", 1)), CONTRACT.outputs, ["C101"]),
        ((tensor("pixels", "batch", 4), CONTRACT.inputs[1]), CONTRACT.outputs, ["C104"]),
        (
            (tensor("x", "batch", 4, dtype="float16"), CONTRACT.inputs[1]),
            CONTRACT.outputs,
            ["C105"],
        ),
        ((tensor("x", "batch", 5), CONTRACT.inputs[1]), CONTRACT.outputs, ["C107"]),
        ((tensor("x", "batch", "batch"), CONTRACT.inputs[1]), CONTRACT.outputs, ["C106"]),
        (CONTRACT.inputs, (tensor("logits", "batch", 80),), ["C204"]),
        (CONTRACT.inputs, (tensor("y", "batch", 81),), ["C207"]),
    ],
)
def test_what_differs_from_the_contract(file, inputs, outputs, expected):
    assert codes(file, Contract(inputs, outputs, CONTRACT.axes)) == expected


def test_names_given_as_from(file):
    renamed = Contract(
        (tensor("pixels", "batch", 4, origin="x"), CONTRACT.inputs[1]),
        (tensor("logits", "batch", 80, origin="y"),),
        CONTRACT.axes,
    )
    result, findings, _ = adopt(file, renamed)
    assert findings == []
    assert [spec.name for spec in (*result.graph.inputs, *result.graph.outputs)] == [
        "pixels",
        "bias",
        "logits",
    ]


def test_an_input_that_nothing_reads_is_a_warning(tmp_path):
    (tmp_path / "theirs").mkdir()
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, int64[n, m] dead) => (float[n] y)'
        " { y = Relu(x) }"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "theirs" / "net.onnx")
    contract = Contract(
        (tensor("x", "batch"), tokens("dead")),
        (tensor("y", "batch"),),
        (BATCH, BATCH.__class__("sequence", 1, 2, 4)),
    )
    _, findings, _ = adopt(tmp_path / "theirs" / "net.onnx", contract)
    assert [(finding.code, finding.severity, finding.place.tensor) for finding in findings] == [
        ("C112", "warning", "dead")
    ]


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda file: file.write_bytes(b"\xff not protobuf"), "E231"),
        (lambda file: file.write_bytes(b""), "E231"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"MatMul", b"NoSuch")), "E233"),
    ],
)
def test_damaged_files_stop_the_export(file, damage, code):
    damage(file)
    result, findings, out = adopt(file)
    assert [finding.code for finding in findings] == [code]
    assert result.graph.inputs == ()
    assert list(out.iterdir()) == []


def test_a_file_that_is_not_there(file):
    file.unlink()
    with pytest.raises(StageFailedError, match="there is no file"):
        adopt(file)


@pytest.mark.parametrize(
    "damage", [lambda weights: weights.unlink(), lambda weights: weights.write_bytes(b"\0" * 100)]
)
def test_weights_that_are_not_all_there_stop_the_export(file, damage):
    damage(file.parent / "net.weights")
    result, findings, out = adopt(file)
    assert [(finding.code, finding.place.tensor) for finding in findings] == [("E210", "weight")]
    assert result.graph.inputs == ()
    assert list(out.iterdir()) == []


def test_weights_that_are_stored_twice_are_a_warning(file):
    model = onnx.load(file)
    model.graph.initializer.append(numpy_helper.from_array(WEIGHT, "again"))
    onnx.save(model, file)
    _, findings, _ = adopt(file)
    # It is read by nothing, too.
    assert [(finding.code, finding.place.tensor) for finding in findings] == [
        ("E237", "again"),
        ("E209", "again"),
    ]


def test_a_file_whose_weights_have_several_hard_links_is_adopted(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32), "w")
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [600]) for name in "xy"
    )
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "net", [x], [y], [weight]
    )
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    (tmp_path / "store").mkdir()
    onnx.save(
        made,
        tmp_path / "store" / "model.onnx",
        save_as_external_data=True,
        location="w.data",
        size_threshold=0,
    )
    (tmp_path / "run").mkdir()
    for name in ("model.onnx", "w.data"):
        (tmp_path / "run" / name).hardlink_to(tmp_path / "store" / name)
    model, _ = adopted(tmp_path / "run" / "model.onnx")
    np.testing.assert_array_equal(model.graph.initializers["w"].const_value.numpy(), np.arange(600))

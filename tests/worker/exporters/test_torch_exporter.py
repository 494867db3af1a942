import numpy as np
import pytest
import torch
from tiny_models import (
    AXES,
    BATCH,
    SEQUENCE,
    X,
    export_factory,
    export_request,
    factory_source,
    module,
    run_onnx,
    tensor,
)

from convkit.protocol.contract import Axis, Contract
from convkit.worker.graph.graph_contract import read_contract
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.export import run


def test_sums_of_axes_keep_the_contracts_words(tmp_path):
    past = Axis("past", 1, 4, 16)
    contract = Contract(
        (X, tensor("past_keys", "batch", "past", 4), tensor("mask", "batch", "past + sequence")),
        (
            tensor("keys", "batch", "past + sequence", 4),
            tensor("masked", "batch", "past + sequence", 4),
        ),
        (*AXES, past),
    )
    code = module(
        "keys = torch.cat([past_keys, x], 1); return {'masked': keys * mask.unsqueeze(-1), 'keys':"
        " keys}",
        "x, past_keys, mask",
    )
    result, findings, out = export_factory(tmp_path, code, contract)
    assert findings == []
    assert result.graph.inputs == contract.inputs
    assert result.graph.outputs == contract.outputs
    feeds = {
        "x": np.ones((1, 9, 4), np.float32),
        "past_keys": np.full((1, 2, 4), 2, np.float32),
        "mask": np.full((1, 11), 3, np.float32),
    }
    keys, masked = run_onnx(out, feeds)
    assert keys[0, :, 0].tolist() == [2] * 2 + [1] * 9
    assert masked[0, :, 0].tolist() == [6] * 2 + [3] * 9


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        ("n = x.shape[1].__index__(); return x.reshape(-1, n, 4)", "sequence"),
        ("return x.reshape(3, -1, 4)", "batch"),
    ],
)
def test_an_axis_that_the_code_fixes_is_named(tmp_path, body, axis):
    result, findings, out = export_factory(
        tmp_path, module(body), Contract((X,), (tensor("y", *X.shape),), AXES)
    )
    assert [(finding.code, finding.evidence["axis"]) for finding in findings] == [("C106", axis)]
    code = (tmp_path / "factory.py").read_text(encoding="utf-8")
    file, line = findings[0].place.source.split(":")
    assert file == "factory.py"
    assert body in code.splitlines()[int(line) - 1]
    assert result.graph.inputs == ()
    assert list(out.iterdir()) == []


def test_a_range_that_the_model_does_not_serve_is_a_change_of_the_recipe(tmp_path):
    code = """
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = torch.nn.Parameter(torch.randn(20, 4))
    def forward(self, x):
        return x + self.positions[:x.shape[1]]
def build():
    return Module()
"""
    _, findings, _ = export_factory(tmp_path, code, Contract((X,), (tensor("y", *X.shape),), AXES))
    (finding,) = findings
    assert finding.code == "C113"
    assert finding.remedy.change == {"axes.sequence.max": 20}


def test_axes_that_the_model_ties_together(tmp_path):
    contract = Contract(
        (tensor("a", "batch", 4), tensor("b", "sequence", 4)), (tensor("y", "batch", 4),), AXES
    )
    # At different sizes the model refuses; it is probed at its typical sizes, which are equal here.
    equal = Contract(contract.inputs, contract.outputs, (BATCH, Axis("sequence", 4, 4, 16)))
    _, findings, _ = export_factory(tmp_path, module("return a + b", "a, b"), equal)
    assert [finding.code for finding in findings] == ["C113"]


def test_control_flow_on_values_is_an_error_with_the_reason(tmp_path):
    code = module("return x if x.sum() > 0 else -x")
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    _, (finding,), _ = export_factory(tmp_path, code, contract)
    assert finding.is_error
    assert finding.code == "E305"
    assert "it depends on the inputs' values" in finding.message


def test_fixed_sizes_stay_sizes(tmp_path):
    one = Axis("batch", 1, 1, 1)
    contract = Contract((X,), (tensor("y", "batch", "sequence", 4),), (one, SEQUENCE))
    result, findings, out = export_factory(
        tmp_path, module("return x.reshape(1, -1, 4) * 2"), contract
    )
    assert findings == []
    assert result.example_sizes["batch"] == 1
    assert run_onnx(out, {"x": np.ones((1, 40, 4), np.float32)})[0].shape == (1, 40, 4)


def test_names_that_are_no_identifiers(tmp_path):
    contract = Contract(
        (tensor("input.1", *X.shape, origin="x"),), (tensor("out/0", *X.shape),), AXES
    )
    result, findings, out = export_factory(tmp_path, module("return x * 2"), contract)
    assert findings == []
    assert [spec.name for spec in read_contract(out / "model.onnx").inputs] == ["input.1"]
    assert run_onnx(out, {"input.1": np.ones((1, 2, 4), np.float32)})[0].max() == 2
    assert result.graph.outputs[0].name == "out/0"


def test_an_input_returned_as_it_is(tmp_path):
    contract = Contract((X,), (tensor("same", *X.shape), tensor("twice", *X.shape)), AXES)
    _, findings, out = export_factory(
        tmp_path, module("return {'same': x, 'twice': x * 2}"), contract
    )
    assert findings == []
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    same, twice = run_onnx(out, {"x": x})
    assert np.array_equal(same, x)
    assert np.array_equal(twice, 2 * x)


def test_a_module_that_writes_into_its_input(tmp_path):
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    _, findings, out = export_factory(tmp_path, module("x += 1; return x * 2"), contract)
    assert findings == []
    assert run_onnx(out, {"x": np.zeros((1, 2, 4), np.float32)})[0].max() == 2


def test_an_opset_that_the_exporter_cannot_give(tmp_path):
    with pytest.raises(StageFailedError, match=r"export\.opset|ONNX"):
        export_factory(
            tmp_path,
            module("return torch.nn.functional.gelu(x)"),
            Contract((X,), (X,), AXES),
            opset=11,
        )


def test_weights_keep_the_models_own_names(tmp_path):
    code = (
        "def build():\n    return torch.nn.Sequential(torch.nn.Linear(4, 40), torch.nn.Linear(40,"
        " 4))\n"
    )
    contract = Contract((tensor("input", "batch", 4),), (tensor("y", "batch", 4),), (BATCH,))
    result, findings, out = export_factory(tmp_path, code, contract)
    assert findings == []
    assert result.parameters == 4 * 40 + 40 + 40 * 4 + 4
    import onnx

    names = {
        t.name for t in onnx.load(out / "model.onnx", load_external_data=False).graph.initializer
    }
    own = {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert {name.removesuffix(".T") for name in names} == own


def test_the_original_is_not_changed_by_its_export(tmp_path):
    from convkit.worker.original.loading import load_model

    source = factory_source(tmp_path, "def build():\n    return torch.nn.Linear(4, 4)\n")
    before = load_model(source).module.weight.clone()
    contract = Contract((tensor("input", "batch", 4),), (tensor("y", "batch", 4),), (BATCH,))
    (tmp_path / "artifact").mkdir()
    run(export_request(source, contract), Context(tmp_path / "artifact"))
    assert torch.equal(load_model(source).module.weight, before)


def test_an_axis_that_may_be_empty(tmp_path):
    past = Axis("past", 0, 4, 16)
    contract = Contract(
        (X, tensor("past_keys", "batch", "past", 4)),
        (tensor("keys", "batch", "past + sequence", 4), tensor("old", "batch", "past", 4)),
        (*AXES, past),
    )
    code = module(
        "return {'keys': torch.cat([past_keys, x], 1), 'old': past_keys * 2}", "x, past_keys"
    )
    _, findings, out = export_factory(tmp_path, code, contract)
    assert findings == []
    feeds = {"x": np.ones((1, 9, 4), np.float32), "past_keys": np.ones((1, 0, 4), np.float32)}
    assert [values.shape for values in run_onnx(out, feeds)] == [(1, 9, 4), (1, 0, 4)]


@pytest.mark.thorough
def test_a_python_loop_over_an_axis_is_named_as_that(tmp_path):
    body = "return torch.stack([x[:, i] * i for i in range(x.shape[1])], 1)"
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    _, (finding,), _ = export_factory(tmp_path, module(body), contract)
    assert (finding.code, finding.place.tensor) == ("C106", "sequence")
    assert "Every exporter unrolls this Python loop over 'sequence'" in finding.remedy.text


def test_an_axis_that_a_literal_size_fixes_is_no_loop(tmp_path):
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    body = "return x + torch.ones(5, 4)"  # the example's size
    _, findings, _ = export_factory(tmp_path, module(body), contract)
    (finding,) = findings
    assert finding.code == "C106"
    assert "without int() or literal sizes" in finding.remedy.text


def test_outputs_that_are_one_tensor_and_an_input_keep_their_names(tmp_path):
    contract = Contract(
        (X,),
        (
            tensor("relu", "batch", "sequence", 4),  # as torch calls the value below
            tensor("sum", "batch", "sequence", 4),
            tensor("again", "batch", "sequence", 4),
            tensor("x_out", "batch", "sequence", 4),
        ),
        AXES,
    )
    code = module("y = x.relu(); z = y + x; return z, y, z, x")
    result, findings, out = export_factory(tmp_path, code, contract)
    assert findings == []
    assert result.graph.outputs == contract.outputs
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    both, positive, again, same = run_onnx(out, {"x": x})
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(positive, np.maximum(x, 0))
    np.testing.assert_array_equal(both, positive + x)
    np.testing.assert_array_equal(again, both)

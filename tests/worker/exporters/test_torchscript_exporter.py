import numpy as np
import pytest
from tiny_models import (
    AXES,
    BERT_SAMPLES,
    X,
    bert_contract,
    bert_source,
    export_factory,
    export_request,
    module,
    run_onnx,
    tensor,
)

from convkit.protocol.contract import Contract
from convkit.worker.job_context import Context
from convkit.worker.stages.export import run


def test_axes_are_symbolic_and_the_numbers_right(tmp_path):
    contract = Contract((X,), (tensor("y", "batch", "sequence", 4),), AXES)
    result, findings, out = export_factory(
        tmp_path, module("return torch.softmax(x * 2, 1)"), contract, "torchscript"
    )
    assert findings == []
    assert (result.graph.inputs, result.graph.outputs) == (contract.inputs, contract.outputs)
    x = np.random.default_rng(0).normal(size=(5, 9, 4)).astype(np.float32)
    (y,) = run_onnx(out, {"x": x})
    np.testing.assert_allclose(y.sum(1), 1, rtol=1e-5)


def test_an_unused_input_is_dropped_and_that_is_found(tmp_path):
    contract = Contract((X, tensor("dead", "batch")), (tensor("y", *X.shape),), AXES)
    result, findings, _ = export_factory(
        tmp_path, module("return x * 2", "x, dead"), contract, "torchscript"
    )
    assert [(finding.code, finding.place.tensor) for finding in findings] == [("C101", "dead")]
    assert [spec.name for spec in result.graph.inputs] == ["x"]


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        ("n = int(x.shape[1]); return x.reshape(-1, n, 4) * 2", ["sequence"]),
        ("return x + torch.arange(int(x.shape[1])).reshape(1, -1, 1)", ["sequence"]),
        ("return x * float(x.shape[0])", ["batch"]),
        ("return torch.stack([row * 2 for row in x])", ["batch"]),
    ],
)
@pytest.mark.sampled(2)
def test_a_size_that_became_a_constant_is_found_before_anything_runs(tmp_path, body, axes):
    _, findings, out = export_factory(
        tmp_path, module(body), Contract((X,), (tensor("y", *X.shape),), AXES), "torchscript"
    )
    (finding,) = findings
    assert finding.code == "C106"
    assert finding.evidence["axes"] == axes
    assert finding.remedy.change == {"export.exporter": "torch"}
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [
        "return x * 2 if x.mean() > 0 else x",
        "return x * float(x.max())",
        "return x * torch.from_numpy(x.detach().numpy().mean((1, 2), keepdims=True))",
    ],
)
def test_what_depends_on_values_is_not_blamed_on_an_axis(tmp_path, body):
    _, findings, _ = export_factory(
        tmp_path, module(body), Contract((X,), (tensor("y", *X.shape),), AXES), "torchscript"
    )
    (finding,) = findings
    assert finding.code == "E305"
    assert finding.place.source == "factory.py:5"
    assert "with other values gives a different graph" in finding.message


def test_the_only_line_that_makes_a_number_is_named(tmp_path):
    _, (finding,), _ = export_factory(
        tmp_path,
        module("return x * float(x.shape[0])"),
        Contract((X,), (tensor("y", *X.shape),), AXES),
        "torchscript",
    )
    assert finding.place.source == "factory.py:5"
    assert finding.message.endswith("A size becomes a plain number at factory.py:5.")


@pytest.mark.thorough
def test_the_module_where_a_size_became_a_constant_is_named(tmp_path):
    code = """
class Head(torch.nn.Module):
    def forward(self, x):
        return x.reshape(-1, int(x.shape[1]), 4) * 2
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = Head()
    def forward(self, x):
        return self.head(x)
def build():
    return Module()
"""
    _, (finding,), _ = export_factory(
        tmp_path, code, Contract((X,), (tensor("y", *X.shape),), AXES), "torchscript"
    )
    assert finding.place.module == "head"


def test_a_size_that_torch_infers_from_its_example_is_not_taken_for_a_fixed_axis(tmp_path):
    contract = Contract((X,), (tensor("y", "batch", "sequence", 2, 2),), AXES)
    result, findings, out = export_factory(
        tmp_path,
        module("return x.transpose(1, 2).unflatten(1, (2, 2)).permute(0, 3, 1, 2)"),
        contract,
        "torchscript",
    )
    assert findings == []
    assert result.graph.outputs == contract.outputs
    x = np.random.default_rng(0).normal(size=(5, 9, 4)).astype(np.float32)
    (y,) = run_onnx(out, {"x": x})
    np.testing.assert_array_equal(y, x.reshape(5, 9, 2, 2))


@pytest.mark.thorough
def test_a_bert(tmp_path):
    import onnx

    contract = bert_contract()
    result, findings = run(
        export_request(bert_source(), contract, "torchscript"), Context(tmp_path)
    )
    assert findings == []
    assert (result.graph.inputs, result.graph.outputs) == (contract.inputs, contract.outputs)
    graph = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph
    modules = {
        entry.value
        for node in graph.node
        for entry in node.metadata_props
        if entry.key == "convkit.module"
    }
    assert "encoder.layer.0.attention.self.query" in modules
    assert not [node for node in graph.node if node.op_type == "Identity"]
    assert BERT_SAMPLES.keys() == {value.name for value in graph.input}


# Its branch returns a value of the code around it.
SCRIPTED = """
import warnings

class Clipped(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        if bool((x > 3).any()):
            y = y.clamp(max=3)
        return y
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.clipped = torch.jit.script(Clipped())
    def forward(self, x):
        return self.clipped(x) + 1
def build():
    return Module()
"""


def test_a_part_in_torchscript_keeps_its_branches(tmp_path):
    contract = Contract((X,), (tensor("y", "batch", "sequence", 4),), AXES)
    _, findings, out = export_factory(tmp_path, SCRIPTED, contract, "torchscript")
    assert findings == []
    for largest in (1.0, 4.0):
        x = np.full((2, 3, 4), largest, np.float32)
        (y,) = run_onnx(out, {"x": x})
        np.testing.assert_array_equal(y, np.minimum(2 * x, 3 if largest > 3 else np.inf) + 1)

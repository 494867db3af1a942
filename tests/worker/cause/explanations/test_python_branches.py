"""A branch on values is the cause only if its other side is what the graph computes."""

import io
import warnings

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import numpy_helper

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.worker.cause.explanations.python_branches import other_side, other_size_side
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel


class Branching(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.abs().max() > 1e6:  # never: inverted, it changes nothing that the graph computes
            x = x / 1e6
        if x.mean() > 0:
            x = x * 3
        return self.layer(x)


POSITIVE = torch.rand(2, 6, generator=torch.Generator().manual_seed(1))


def exported(example: torch.Tensor) -> onnx.ModelProto:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says about tracing a branch
        names = {"input_names": ["x"], "output_names": ["y"]}
        torch.onnx.export(Branching(), (example,), stream, dynamo=False, opset_version=17, **names)
    return onnx.load_from_string(stream.getvalue())


def found(model: onnx.ModelProto, x: torch.Tensor) -> Finding | None:
    graph = make_graph(onnx_ir.from_proto(model))
    computed = graph.run(["y"], {"x": x.numpy()})
    return other_side(Branching(), {"x": x}, ("y",), computed, "typical")


@pytest.mark.parametrize(("traced", "given"), [(POSITIVE, -POSITIVE), (-POSITIVE, POSITIVE)])
def test_the_line_of_the_other_side_is_named(traced: torch.Tensor, given: torch.Tensor) -> None:
    finding = found(exported(traced), given)
    assert finding is not None
    assert (finding.code, finding.evidence["proven"]) == ("E208", True)
    assert finding.place.source is not None
    assert finding.place.source.endswith("test_python_branches.py:30")
    assert finding.evidence["outcome"] is bool(given.mean() > 0)


@pytest.mark.parametrize("given", [POSITIVE, -POSITIVE])
def test_another_fault_is_not_blamed_on_a_branch(given: torch.Tensor) -> None:
    model = exported(POSITIVE)
    for tensor in model.graph.initializer:
        if tensor.name == "layer.weight":
            values = numpy_helper.to_array(tensor) * np.float32(1.5)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert found(model, given) is None


def test_a_right_graph_has_no_such_branch() -> None:
    assert found(exported(POSITIVE), POSITIVE) is None


class OnSizes(torch.nn.Module):
    """A branch on a size that matters, and one that does not."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > self.at:
            x = x * 3
        if x.shape[0] == 7:
            x = 1 * x
        return x + 1


def on_sizes(computed: np.ndarray) -> Finding | None:
    specs = (TensorSpec("x", "float32", ("batch", "sequence")),)
    outputs = (TensorSpec("y", "float32", ("batch", "sequence")),)
    module = ContractModule(LoadedModel(OnSizes(5), "a test's"), Contract(specs, outputs, ()))
    return other_size_side(module, {"x": torch.ones(2, 6)}, {"y": computed}, "long")


def test_a_comparison_of_sizes_is_proven_by_its_other_side() -> None:
    finding = on_sizes(np.full((2, 6), 2, np.float32))
    assert finding is not None
    assert (finding.code, finding.evidence["proven"]) == ("E302", True)
    assert finding.place.source is not None
    assert finding.place.source.endswith("test_python_branches.py:85")


def test_a_comparison_that_explains_nothing_is_not_named() -> None:
    assert on_sizes(np.full((2, 6), 7, np.float32)) is None

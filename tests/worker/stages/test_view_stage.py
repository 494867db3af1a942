"""What each node of a graph computes, beside what it should: `convkit view`'s job, called here."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from faults.exporting import exported
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import LowPrecision, Source, ViewedNode, ViewRequest, ViewResult
from convkit.worker.building.lowered_files import lower_file
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.view import run

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x)) * 3000))

def build():
    return Net()
"""
CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 8)),),
    (TensorSpec("y", "float32", ("batch", 3)),),
    (Axis("batch", 1, 4, 8),),
)


@dataclasses.dataclass(frozen=True)
class Made:
    """A model's code, a case of its inputs, and its graph, in one folder."""

    folder: Path
    graph: onnx.ModelProto

    def viewed(self, *, built: str | None = None) -> ViewResult:
        (self.folder / "exported").mkdir(exist_ok=True)
        onnx.save(self.graph, self.folder / "exported" / "model.onnx")
        request = ViewRequest(
            Source("factory", path=str(self.folder / "model.py"), identifier="build", seed=3),
            CONTRACT,
            str(self.folder / "exported"),
            str(self.folder),
            "typical",
            str(self.folder / built) if built is not None else None,
        )
        return run(request, Context(self.folder))[0]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    (tmp_path / "model.py").write_text(f"import torch\n{CODE}")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    write_tensors(tmp_path, "typical", "inputs", {"x": x.numpy()})
    graph = exported(CODE, {"x": x}, ("y",), axes={0: "batch"}, output_axes={0: "batch"})
    return Made(tmp_path, graph)


def by_op(view: ViewResult, op: str) -> ViewedNode:
    return next(node for node in view.nodes if node.op == op)


def set_weight(model: onnx.ModelProto, name: str, values: np.ndarray) -> None:
    tensor = next(each for each in model.graph.initializer if each.name == name)
    tensor.CopyFrom(numpy_helper.from_array(values, name))


def test_a_right_graph_has_no_errors(made: Made) -> None:
    view = made.viewed()
    assert (view.shown, view.basis, view.simulated) == ("exported", "original", False)
    assert view.deviation is not None
    assert view.deviation < 1e-5
    errors = [node.error for node in view.nodes if node.error is not None]
    assert len(errors) >= 5
    assert max(errors) == 0
    assert (view.inputs, view.outputs) == (("x",), ("y",))
    first = by_op(view, "Gemm")
    assert (first.module, first.dtype, first.shape) == ("first", "float32", (4, 16))


def test_a_wrong_weight_is_off_from_its_node_on(made: Made) -> None:
    set_weight(made.graph, "norm.weight", np.full(16, 1.5, np.float32))
    view = made.viewed()
    assert view.basis == "corrected"
    wrong = [node for node in view.nodes if node.error and node.error > 1e-3]
    assert [node.op for node in wrong] == ["LayerNormalization", "Gemm"]
    assert wrong[0].module == "norm"
    assert wrong[0].writes == view.corrected_at
    assert wrong[0].error == pytest.approx(0.5 * wrong[0].largest / 1, rel=1e-2)


def test_float16_is_simulated_and_its_overflow_shown(made: Made) -> None:
    made.viewed()
    (made.folder / "low").mkdir()
    graph = Path("model.onnx")
    lower_file(
        made.folder / "exported" / graph, made.folder / "low" / graph, LowPrecision("float16")
    )
    view = made.viewed(built="low")
    assert (view.shown, view.simulated, view.range_of) == ("built", True, "float16")
    product = by_op(view, "Mul")
    assert product.dtype == "float16"
    assert product.headroom == pytest.approx(65504 / product.largest)
    assert 0 < by_op(view, "Gemm").error < 1e-2


def test_what_a_node_loses_is_no_error_of_its_size(made: Made) -> None:
    (made.folder / "built").mkdir()
    broken = onnx.ModelProto.FromString(made.graph.SerializeToString())
    set_weight(broken, "last.bias", np.full(3, np.nan, np.float32))
    onnx.save(broken, made.folder / "built" / "model.onnx")
    view = made.viewed(built="built")
    assert [node.lost for node in view.nodes] == [False] * (len(view.nodes) - 1) + [True]


def test_int8_is_compared_as_it_is_quantized(made: Made) -> None:
    """The quantizer folds Relu into the quantization, and gives the product Relu's name."""
    made.viewed()
    (made.folder / "int8").mkdir()
    quantize_static(
        made.folder / "exported" / "model.onnx",
        made.folder / "int8" / "model.onnx",
        Calibration(made.folder),
        op_types_to_quantize=["Gemm", "Relu"],
    )
    view = made.viewed(built="int8")
    assert "Relu" not in {node.op for node in view.nodes}
    product = by_op(view, "Gemm")
    assert product.dtype in ("int8", "uint8")
    assert 0 < product.error < 0.1
    assert by_op(view, "LayerNormalization").dtype == "float32"


def test_a_graph_that_cannot_run_is_an_error(made: Made) -> None:
    (made.folder / "built").mkdir()
    broken = onnx.ModelProto.FromString(made.graph.SerializeToString())
    broken.graph.node[0].input[1] = "last.bias"
    onnx.save(broken, made.folder / "built" / "model.onnx")
    with pytest.raises(StageFailedError, match="node by node"):
        made.viewed(built="built")


class Calibration(CalibrationDataReader):
    def __init__(self, folder: Path) -> None:
        self.feeds = iter([{"x": np.load(folder / "typical" / "inputs" / "x.npy")}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)

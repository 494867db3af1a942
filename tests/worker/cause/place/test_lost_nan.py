"""Kernels that return numbers where an input is NaN, and code that helps."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.place.lost_nan import guarded
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.wording.cause_findings import findings_of

X = np.array([[0.5, np.nan, -1, 2], [np.nan, 1, 3, -2], [1, -1, 0.5, -3]], np.float32)


class Largest(torch.nn.Module):
    def __init__(self, kind: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kind(x * 2) + 1


def graph_of(node: str, output: str) -> Graph:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[3, 4] x) => ({output} y) <float two = {{2}}, {output[:5]} one = {{1}}> {{
            twice = Mul(x, two)
            most = {node}
            y = Add(most, one)
        }}"""
    return make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))


# onnxruntime 1.31 takes maxima with comparisons, which are false for NaN.
@pytest.mark.parametrize(
    ("kind", "node", "output", "code"),
    [
        (lambda x: x.amax(1), "ReduceMax<axes=[1], keepdims=0>(twice)", "float[3]", "any(dim)"),
        (lambda x: x.argmin(1), "ArgMin<axis=1, keepdims=0>(twice)", "int64[3]", "argmax(dim)"),
    ],
)
def test_a_maximum_that_loses_nan_is_the_kernels_and_has_code_that_was_tried(
    kind: Callable[[torch.Tensor], torch.Tensor], node: str, output: str, code: str
) -> None:
    recording = record(Largest(kind), {"x": torch.from_numpy(X)}, ("y",))
    found = localize(recording, graph_of(node, output), {"x": X}, {})
    (finding,) = findings_of(found, "example")
    assert (finding.code, finding.evidence["owner"]) == ("N408", "kernel")
    assert finding.place.tensor == "most"
    assert f"onnxruntime {onnxruntime.__version__} loses NaN in" in finding.message
    assert finding.remedy is not None
    assert code in finding.remedy.text
    assert "convkit tried it" in finding.remedy.text


def test_numbers_that_are_wrong_are_no_lost_nan() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    recording = record(Largest(lambda x: x.amax(1)), {"x": torch.from_numpy(x)}, ("y",))
    graph = graph_of("ReduceMin<axes=[1], keepdims=0>(twice)", "float[3]")
    findings = findings_of(localize(recording, graph, {"x": x}, {}), "example")
    assert findings
    assert not any("loses NaN" in each.message for each in findings)


@pytest.mark.parametrize("node", ["Softmax<axis=1>(twice)", "Clip(twice, two)", "Relu(twice)"])
def test_a_guard_puts_nan_back_and_changes_no_number(node: str) -> None:
    graph = graph_of(node, "float[3, 4]")
    most = next(each for each in graph.nodes if "most" in each.output)
    made = guarded(graph, most)
    assert made is not None
    numbers = np.where(np.isnan(X), 0, X).astype(np.float32)
    np.testing.assert_array_equal(
        made[0].run(["y"], {"x": numbers})["y"], graph.run(["y"], {"x": numbers})["y"]
    )
    # The kernel's own result, in which NaN is lost.
    lost = {"most//kernel": np.zeros((3, 4), np.float32)}
    assert np.isnan(made[0].run(["y"], {"x": X, **lost})["y"][np.isnan(X)]).all()

"""Kernels that are off by little, which a later step makes large, and places that read nothing
wrong.
"""

import onnx
import onnx_ir
import onnxruntime
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of

X = torch.linspace(-40, 20, 24).reshape(4, 6)


class Likelihood(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.sigmoid(x * 2)
        return torch.log(scores) + 1


def diagnosed(score: str) -> Diagnosis:
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[4, 6] x) => (float[4, 6] y) <float two = {{2}}, float one = {{1}}> {{
            twice = Mul(x, two)
            scores = {score}
            logs = Log(scores)
            y = Add(logs, one)
        }}"""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    recording = record(Likelihood(), {"x": X}, ("y",))
    return localize(recording, graph, {"x": X.numpy()}, {})


# onnxruntime 1.31 returns 0 for the sigmoid of numbers below -18.
def test_a_sigmoid_that_is_0_before_a_logarithm_is_the_kernels_at_the_sigmoid() -> None:
    (finding,) = findings_of(diagnosed("Sigmoid(twice)"), "example")
    assert (finding.code, finding.place.tensor) == ("N408", "scores")
    assert finding.evidence["owner"] == "kernel"
    assert f"onnxruntime {onnxruntime.__version__}'s kernel is off in Sigmoid" in finding.message
    assert "Log" in finding.message
    assert finding.remedy is not None
    assert "1 / (1 + torch.exp(-x))" in finding.remedy.text
    assert "convkit tried it" in finding.remedy.text


@pytest.mark.thorough
def test_a_graph_that_is_wrong_there_is_named_beside_the_kernel() -> None:
    findings = findings_of(diagnosed("HardSigmoid(twice)"), "example")
    (wrong,) = (each for each in findings if each.code == "N405")
    assert "should compute Sigmoid" in wrong.message
    assert "owner" not in wrong.evidence

"""What the original computes from its weights alone may be a constant of the graph."""

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph, renamed_inputs
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.weights.traced_weights import compare_weights
from convkit.worker.cause.weights.weight_only_values import precomputed


class Scaled(torch.nn.Module):
    """A root mean square norm whose weight is one less than its scale, a decay, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.rate = torch.nn.Parameter(torch.randn(6)), torch.nn.Parameter(torch.rand(6))
        self.last = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return self.last(torch.tanh(normal * (1.0 + self.gain)) * torch.exp(-self.rate.exp()))


HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
NODES = """
    agraph (float[batch, 6] x) => (float[batch, 4] y) {
        square = Mul(x, x)
        mean = ReduceMean<axes = [-1], keepdims = 1>(square)
        above = Add(mean, epsilon)
        root = Sqrt(above)
        normal = Div(x, root)
        scaled = Mul(normal, scale)
        bent = ACTIVATION(scaled)
        decayed = Mul(bent, decay)
        y = Gemm<transB = 1>(decayed, weight, bias)
    }
"""
X = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def original() -> Scaled:
    torch.manual_seed(5)
    return Scaled().eval()


def folded(original: Scaled, activation: str = "Tanh", **changed: np.ndarray) -> Graph:
    """Return the graph of an exporter that computes beforehand what needs no input."""
    model = onnx.parser.parse_model(HEAD + NODES.replace("ACTIVATION", activation))
    with torch.no_grad():
        constants = {
            "epsilon": np.float32(1e-6),
            "scale": (1.0 + original.gain).numpy(),
            "decay": torch.exp(-original.rate.exp()).numpy(),
            "weight": original.last.weight.numpy(),
            "bias": original.last.bias.numpy(),
        }
    for name, values in (constants | changed).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return make_graph(onnx_ir.from_proto(model))


def test_such_constants_are_the_original_s(original: Scaled) -> None:
    recording = record(original, {"x": X}, ("y",))
    graph, state = folded(original), state_of(original)
    report = compare_weights(graph, state, computed=precomputed(recording))
    assert report.differences == ()
    assert report.unknown == ()
    sources = {match.weight: match.sources for match in report.matches}
    assert (sources["scale"], sources["decay"]) == (("gain",), ("rate",))
    # Without the recording, nothing says what the original adds to its weight.
    assert [each.weight for each in compare_weights(graph, state).differences] == ["scale"]


def test_another_fault_is_not_put_down_to_them(original: Scaled) -> None:
    recording = record(original, {"x": X}, ("y",))
    graph = folded(original, "Sigmoid")
    found = localize(recording, graph, {"x": X.numpy()}, state_of(original))
    assert [cause.kind for cause in found.causes] == ["operator"]
    assert "Tanh" in found.causes[0].text


def test_one_that_is_wrong_is_named_with_its_source(original: Scaled) -> None:
    recording = record(original, {"x": X}, ("y",))
    graph = folded(original, decay=torch.exp(-original.rate).detach().numpy() * 0.5)
    found = localize(recording, graph, {"x": X.numpy()}, state_of(original))
    (cause,) = found.causes
    assert (cause.kind, cause.tensor) == ("weight", "decay")


def test_a_named_weight_may_hold_it(original: Scaled) -> None:
    recording = record(original, {"x": X}, ("y",))
    graph = folded(original)
    nodes = [renamed_inputs(node, {"scale": "gain"}) for node in graph.nodes]
    named = graph.with_nodes(nodes, {"gain": graph.constants["scale"]})
    report = compare_weights(named, state_of(original), computed=precomputed(recording))
    assert report.differences == ()

"""Steps in the wrong order, exchanged values and faults in loops, in whole exported graphs."""

import copy
import io
import math
import warnings
from collections.abc import Callable

import numpy as np
import onnx.parser
import onnx_ir
import pytest
import torch
from onnx import helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.explanations.loop_bodies import bodies
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Diagnosis


class Net(torch.nn.Module):
    """Two layers with `step` between them, which a mistaken export replaces."""

    def __init__(self, step: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step = step
        self.first, self.last = torch.nn.Linear(6, 8), torch.nn.Linear(8, 4)
        self.norm = torch.nn.LayerNorm(8)
        self.gain = torch.nn.Parameter(torch.rand(8) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.step(self, self.first(x)))


def original(step: Callable) -> Net:
    torch.manual_seed(0)
    return Net(step).eval()


def exported(module: torch.nn.Module, x: torch.Tensor) -> onnx.ModelProto:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations and what it says about tracing
        torch.onnx.export(module, (x,), stream, dynamo=False, input_names=["x"], output_names=["y"])
    return onnx.load_from_string(stream.getvalue())


def diagnosed(module: torch.nn.Module, model: onnx.ModelProto, x: torch.Tensor) -> Diagnosis:
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(record(module, {"x": x}, ("y",)), graph, {"x": x.numpy()}, state)


X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x)


def router(net: torch.nn.Module, x: torch.Tensor, scores: Callable) -> torch.Tensor:
    weights, _ = scores(x).topk(3, -1)
    return x * weights.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("right", "wrong", "kind", "text"),
    [
        pytest.param(
            lambda net, x: gelu(net.norm(x)),
            lambda net, x: net.norm(gelu(x)),
            "wiring",
            "the steps are in the wrong order: LayerNormalization /norm/LayerNormalization should"
            " come before Gelu",
            id="normalized after the activation",
        ),
        pytest.param(
            lambda net, x: torch.nn.functional.softplus(x + net.shift),
            lambda net, x: torch.nn.functional.softplus(x) + net.shift,
            "wiring",
            "should come before Softplus",
            id="shifted after the activation",
        ),
        pytest.param(
            lambda net, x: torch.tanh(x) * net.gain + net.shift,
            lambda net, x: torch.tanh(x) * net.shift + net.gain,
            "exchanged",
            "are swapped wherever they are read here",
            id="gain and shift",
        ),
        pytest.param(
            lambda _, x: torch.roll(torch.tanh(x), (1, 2), (1, 2)),
            lambda _, x: torch.roll(torch.tanh(x), (-1, -2), (1, 2)),
            "order",
            "shifted by -1 along axis 1 and shifted by -2 along axis 2 and should have it shifted"
            " by 1 along axis 1 and shifted by 2 along axis 2",
            id="rolled the other way",
        ),
        pytest.param(
            lambda net, x: router(net, x, torch.sigmoid),
            lambda net, x: router(net, x, lambda x: torch.softmax(x, -1)),
            "operator",
            "computes softmax over its last axis of",
            id="the best scores are the same",
        ),
    ],
)
def test_the_cause_is_named(right: Callable, wrong: Callable, kind: str, text: str) -> None:
    module = original(right)
    mistaken = copy.copy(module)
    mistaken.step = wrong
    diagnosis = diagnosed(module, exported(mistaken, X), X)
    assert diagnosis.error > 1e-2
    (cause,) = diagnosis.causes
    assert cause.kind == kind
    assert text in cause.text
    assert diagnosis.remaining < 2e-5


def decayed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    state = torch.zeros_like(x[:, 0])
    for step in range(x.shape[1]):
        state = state * torch.sigmoid(gain) * 0.5 + x[:, step]
    return state


def looped() -> tuple[Net, onnx.ModelProto, onnx.GraphProto]:
    """Return a model whose step is a loop, its graph, and the loop's body in the graph."""
    module = original(lambda net, x: decayed(x, net.gain))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and exports are made with it
        scripted = torch.jit.script(decayed)
    loop = copy.copy(module)
    loop.step = lambda net, x: scripted(x, net.gain)
    model = exported(loop, X)
    (node,) = [node for node in model.graph.node if node.op_type == "Loop"]
    return module, model, next(each.g for each in node.attribute if each.name == "body")


def replace_operator(body: onnx.GraphProto) -> None:
    next(node for node in body.node if node.op_type == "Sigmoid").op_type = "Tanh"


def change_number(body: onnx.GraphProto) -> None:
    (half,) = [
        node
        for node in body.node
        if node.op_type == "Constant"
        and onnx.numpy_helper.to_array(node.attribute[0].t).dtype == np.float32
    ]
    half.CopyFrom(helper.make_node("Constant", [], list(half.output), value_float=0.75))


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(replace_operator, "it is Tanh and should be Sigmoid"), (change_number, "should be 0.5")],
)
def test_a_fault_in_the_body_of_a_loop_is_named(
    spoil: Callable[[onnx.GraphProto], None], text: str
) -> None:
    module, model, body = looped()
    assert diagnosed(module, model, X).error < 1e-6
    spoil(body)
    diagnosis = diagnosed(module, model, X)
    (cause,) = diagnosis.causes
    assert "Loop" in cause.text
    assert "in its body, " in cause.text
    assert text in cause.text
    assert math.isfinite(diagnosis.error)
    assert diagnosis.remaining < 2e-5


def test_a_step_at_one_of_two_readers_is_no_change_of_the_input() -> None:
    class Twice(torch.nn.Module):
        def __init__(self, *, turned: bool) -> None:
            super().__init__()
            self.turned = turned
            self.layer = torch.nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = x.transpose(1, 2) if self.turned else x
            return torch.tanh(self.layer(first)) @ x

    torch.manual_seed(0)
    module, mistaken = Twice(turned=False), Twice(turned=True)
    mistaken.load_state_dict(module.state_dict())
    square = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1))
    diagnosis = diagnosed(module, exported(mistaken, square), square)
    (cause,) = diagnosis.causes
    assert "Transpose /Transpose should not be there" in cause.text
    assert cause.boundary is None  # fed otherwise, the other reader would be wrong


@pytest.mark.parametrize(("rounds", "tried"), [(3, True), (2**62, False)])
def test_a_loop_that_only_its_condition_ends_is_left_alone(rounds: int, *, tried: bool) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (float[4] y) <int64 rounds = {1}, bool go = {1}> {
      y = Loop (rounds, go, x) <body = b (int64 i, bool on, float[4] h) => (bool more, float[4] n)
        { n = Relu (h)  more = Identity (on) }>
    }
    """
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    graph = graph.with_nodes(graph.nodes, {"rounds": np.array(rounds)})
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    place = Region(graph, "y", {"x": x}, np.tanh(x), (), {}, ("x",), {})
    assert any("should be Tanh" in each.text for each in bodies(place)) is tried

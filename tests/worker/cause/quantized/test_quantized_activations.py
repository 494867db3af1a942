"""What is wrong with quantized activations: a range that does not fit, and what reads it."""

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import helper, numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.search_types.search_results import Diagnosis

X = torch.randn(8, 6, generator=torch.Generator().manual_seed(4))
FLOAT, OPSET = onnx.TensorProto.FLOAT, [helper.make_opsetid("", 17)]


class Net(torch.nn.Module):
    """Two layers with an activation between them."""

    def __init__(self, activation: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.last, self.step = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.step(self.first(x)))


def made(activation: torch.nn.Module) -> Net:
    torch.manual_seed(1)
    return Net(activation).eval()


def quantized(net: Net, operator: str, low: float, high: float, **reads: float) -> onnx.ModelProto:
    """Write the net with its hidden activation rounded to 8 bits from `low` to `high`; `reads` are
    numbers with which it is made floats again, in place of its own. `operator` is the activation,
    "" if the range replaces it.
    """
    scale = np.float32((high - low) / 255)
    zero = np.uint8(round(-low / float(scale)))
    constants = {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}
    constants |= {"scale": scale, "zero": zero}
    constants["read.scale"] = np.float32(reads.get("scale", scale))
    constants["read.zero"] = np.uint8(reads.get("zero", zero))
    before = "b" if operator else "a"
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["a"], "first", transB=1),
        *([helper.make_node(operator, ["a"], ["b"], "step")] if operator else []),
        helper.make_node("QuantizeLinear", [before, "scale", "zero"], ["q"], "round"),
        helper.make_node("DequantizeLinear", ["q", "read.scale", "read.zero"], ["h"], "back"),
        helper.make_node("Gemm", ["h", "last.weight", "last.bias"], ["y"], "last", transB=1),
    ]
    x, y = (helper.make_tensor_value_info(name, FLOAT, None) for name in "xy")
    given = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "graph", [x], [y], given)
    return helper.make_model(graph, opset_imports=OPSET, ir_version=10)


def diagnosed(net: torch.nn.Module, model: onnx.ModelProto) -> Diagnosis:
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(record(net, {"x": X}, ("y",)), graph, {"x": X.numpy()}, state_of(net))


@pytest.mark.parametrize(
    ("span", "reads", "text"),
    [
        ((-0.2, 0.2), {}, "clips"),
        ((-40.0, 40.0), {}, "in steps of 0.314, for values from"),
        ((-1.0, 1.0), {"scale": 0.01}, "and back reads it with 0.01"),
        ((-1.0, 1.0), {"zero": 100}, "its zero point is 127, and back reads it with 100"),
    ],
    ids=["clipped", "coarse", "scale", "zero point"],
)
def test_numbers_that_do_not_fit_are_named(
    span: tuple[float, float], reads: dict[str, float], text: str
) -> None:
    net = made(torch.nn.Tanh())
    cause = diagnosed(net, quantized(net, "Tanh", *span, **reads)).causes[0]
    assert (cause.kind, cause.node, cause.tensor) == ("quantized", "round", "b")
    assert text in cause.text
    assert cause.after < cause.before / 100


def test_an_activation_that_a_range_stands_for_is_no_clipping() -> None:
    net = made(torch.nn.ReLU())
    assert not diagnosed(net, quantized(net, "", 0.0, 2.5)).causes
    clipped = diagnosed(net, quantized(net, "", 0.0, 0.2)).causes[0]
    assert (clipped.kind, clipped.node) == ("quantized", "round")


def test_one_large_channel_is_named_if_it_leaves_the_others_too_few_steps() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 4, bias=False)
            with torch.no_grad():
                self.first.weight[2] *= 300
                self.last.weight[:, 2] /= 300

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x))

    torch.manual_seed(1)
    net = Scaled().eval()
    constants = {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["a"], "first", transB=1),
        helper.make_node("DynamicQuantizeLinear", ["a"], ["q", "scale", "zero"], "round"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["h"], "back"),
        helper.make_node("Gemm", ["h", "last.weight"], ["y"], "last", transB=1),
    ]
    x, y = (helper.make_tensor_value_info(name, FLOAT, None) for name in "xy")
    given = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "graph", [x], [y], given)
    model = helper.make_model(graph, opset_imports=OPSET, ir_version=10)
    cause = diagnosed(net, model).causes[0]
    assert (cause.kind, cause.node) == ("rounding", "round")
    assert "channel 2 of 6 (axis 1) reaches" in cause.text


def test_another_fault_is_found_behind_the_rounding() -> None:
    net = made(torch.nn.Tanh())
    cause = diagnosed(net, quantized(net, "Sigmoid", -1.0, 1.0)).causes[0]
    assert (cause.kind, cause.node) == ("operator", "step")
    assert "should compute Tanh" in cause.text

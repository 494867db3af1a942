"""What is wrong with a quantized weight, and that what is right is called so."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import helper, numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.quantized.float_lowering import lowered
from convkit.worker.cause.quantized.quantized_comparison import QuantizedMatch, compare_quantized
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.wording.cause_findings import findings_of

SIZE = 12
WEIGHT = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
STATE = {"layer.weight": WEIGHT.T.copy(), "other.weight": np.sin(WEIGHT)}

Change = Callable[[dict[str, np.ndarray]], object]


def quantized(per_channel: bool = True, unsigned: bool = False) -> dict[str, np.ndarray]:
    """Quantize WEIGHT ([K, N], a scale for each column) to the nearest step."""
    top = np.abs(WEIGHT).max(0) if per_channel else np.abs(WEIGHT).max()
    scale = np.asarray(top / 127, np.float32)
    numbers = np.round(WEIGHT / scale)
    dtype, zero = (np.uint8, 128) if unsigned else (np.int8, 0)
    return {
        "q": (numbers + zero).astype(dtype),
        "scale": scale,
        "zero": np.full(scale.shape, zero, dtype),
        "axis": np.asarray(1),
    }


def graph_of(parts: dict[str, np.ndarray]) -> Graph:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", SIZE])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", SIZE])
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=int(parts["axis"]), name="dq"
        ),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
    ]
    weights = [numpy_helper.from_array(parts[name], name) for name in ("q", "scale", "zero")]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return make_graph(
        onnx_ir.from_proto(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        )
    )


def matches(graph: Graph, state: dict[str, np.ndarray]) -> list[QuantizedMatch]:
    return compare_quantized(lowered(graph)[1], state)


def zero_point(parts: dict[str, np.ndarray]) -> None:
    parts["zero"] += np.asarray(17, parts["zero"].dtype)


def one_zero_point(parts: dict[str, np.ndarray]) -> None:
    parts["zero"][4] = 9


def one_scale(parts: dict[str, np.ndarray]) -> None:
    parts["scale"][3] *= 2


def scales_slightly_off(parts: dict[str, np.ndarray]) -> None:
    """Most small numbers are within half a step all the same."""
    parts["scale"] *= np.where(np.arange(SIZE) % 2, 1.05, 1.08).astype(np.float32)


def every_scale(parts: dict[str, np.ndarray]) -> None:
    parts["scale"] *= np.float32(1.5)


def wrong_axis(parts: dict[str, np.ndarray]) -> None:
    parts["axis"] = np.asarray(0)


def read_as_unsigned(parts: dict[str, np.ndarray]) -> None:
    parts["q"], parts["zero"] = parts["q"].view(np.uint8), parts["zero"].view(np.uint8)


def clipped(parts: dict[str, np.ndarray]) -> None:
    parts["scale"] = parts["scale"] / 4
    parts["q"] = np.clip(np.round(WEIGHT / parts["scale"]), -127, 127).astype(np.int8)


def zero_scale(parts: dict[str, np.ndarray]) -> None:
    parts["scale"][0] = 0


def another_row(parts: dict[str, np.ndarray]) -> None:
    parts["q"][2] = parts["q"][5]


def another_column(parts: dict[str, np.ndarray]) -> None:
    parts["q"][:, 7] = parts["q"][:, 1]


def scrambled_rows(parts: dict[str, np.ndarray]) -> None:
    parts["q"][:3] = parts["q"][:3, ::-1]


FAULTS: dict[Change, str] = {
    zero_point: "the zero point of all 12 channels is wrong (channel 0: 17 instead of 0",
    one_zero_point: "the zero point of one channel is wrong (channel 4: 9 instead of 0)",
    one_scale: "the scale of one channel along axis 1 is wrong (channel 3: ",
    scales_slightly_off: "the scale of all 12 channels along axis 1 is wrong (channel 0: 1.0",
    every_scale: "the scale of all 12 channels along axis 1 is wrong (channel 0: 1.",
    wrong_axis: "its scales apply along axis 0 and belong to axis 1",
    read_as_unsigned: "it is uint8 and its numbers are those of int8",
    clipped: "its range is clipped",
    zero_scale: "a scale is zero",
    another_row: "1 of 12 slices along axis 0 are not the original's (2 holds that of 5)",
    another_column: "1 of 12 slices along axis 1 are not the original's (7 holds that of 1)",
    scrambled_rows: "3 of 12 slices along axis 0 are not the original's (0, 1, 2)",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_wrong_is_named(fault: Change) -> None:
    parts = quantized()
    fault(parts)
    (match,) = matches(graph_of(parts), STATE)
    assert match.original == "layer.weight"
    assert match.problem is not None
    assert FAULTS[fault] in match.problem
    assert not match.nearest


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("unsigned", [True, False])
def test_a_weight_that_is_right_has_no_problem(per_channel: bool, unsigned: bool) -> None:
    (match,) = matches(graph_of(quantized(per_channel, unsigned)), STATE)
    assert (match.original, match.problem, match.nearest) == ("layer.weight", None, True)


def test_another_model_s_weight_is_not_compared() -> None:
    state = {"a": np.random.default_rng(9).standard_normal((SIZE, SIZE)).astype(np.float32)}
    assert matches(graph_of(quantized()), state) == []


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(SIZE, SIZE, bias=False)
        with torch.no_grad():
            self.layer.weight.copy_(torch.from_numpy(WEIGHT.T.copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize(("fault", "code"), [(one_scale, "Q108"), (None, "Q109")])
def test_the_cause_is_proven_at_the_outputs(fault: Change | None, code: str) -> None:
    parts = quantized()
    if fault is not None:
        fault(parts)
    x = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(0))
    recording = record(Layer(), {"x": x}, ("y",))
    diagnosis = localize(recording, graph_of(parts), {"x": x.numpy()}, STATE)
    finding = findings_of(diagnosis, "case")[0]
    assert (finding.code, finding.place.tensor, finding.place.module) == (code, "q", "layer")
    assert finding.evidence["proven"] is True
    assert diagnosis.causes[0].after < diagnosis.causes[0].before / 10


def test_swapped_scales_of_two_layers_are_named_though_they_cancel_out() -> None:
    """Behind a rectifier, what one layer makes larger the next makes smaller."""
    weights = [WEIGHT, np.cos(WEIGHT * 3).astype(np.float32)]
    parts: dict[str, np.ndarray] = {}
    for name, values in zip("ab", weights, strict=True):
        parts[f"{name}.s"] = np.asarray(np.abs(values).max() / 127, np.float32)
        parts[f"{name}.q"] = np.round(values / parts[f"{name}.s"]).astype(np.int8)
    parts["a.s"], parts["b.s"] = parts["b.s"], parts["a.s"]
    parts["bias"] = np.full(SIZE, 0.2, np.float32)
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", SIZE]) for n in "xy")
    nodes = [
        *(helper.make_node("DequantizeLinear", [f"{n}.q", f"{n}.s"], [n]) for n in "ab"),
        helper.make_node("MatMul", ["x", "a"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["first"]),
        helper.make_node("Relu", ["first"], ["positive"]),
        helper.make_node("MatMul", ["positive", "b"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(values, name) for name, values in parts.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], initializers),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    graph = make_graph(onnx_ir.from_proto(model))

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, values in zip("ab", weights, strict=True):
                layer = torch.nn.Linear(SIZE, SIZE, bias=name == "a")
                layer.weight.data = torch.from_numpy(values.T.copy())
                self.add_module(name, layer)
            torch.nn.init.constant_(self.a.bias, 0.2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)))

    inputs = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(0))
    module = Two().eval()
    recording = record(module, {"x": inputs}, ("y",))
    state = {name: each.detach().numpy() for name, each in module.state_dict().items()}
    diagnosis = localize(recording, graph, {"x": inputs.numpy()}, state)
    assert {cause.tensor for cause in diagnosis.causes} == {"a.q", "b.q"}
    assert all("its scale is" in cause.text for cause in diagnosis.causes)


@pytest.mark.parametrize(
    ("shaken", "says"),
    [(False, "one weight is rounded to 8 bits, correctly"), (True, "1 of them not to the nearest")],
)
def test_only_what_is_at_the_nearest_step_is_called_correct(shaken: bool, says: str) -> None:
    """Quantizers that compensate errors (GPTQ) round many values to the step after the nearest."""
    parts = quantized()
    if shaken:
        steps = np.random.default_rng(3).integers(-1, 2, parts["q"].shape)
        parts["q"] = np.clip(parts["q"].astype(np.int64) + steps, -127, 127).astype(np.int8)
    x = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(0))
    recording = record(Layer(), {"x": x}, ("y",))
    diagnosis = localize(recording, graph_of(parts), {"x": x.numpy()}, STATE)
    assert diagnosis.causes[0].kind == "rounding"
    assert says in diagnosis.causes[0].text


def test_a_convolution_with_its_norm_folded_in_is_compared() -> None:
    generator = np.random.default_rng(4)
    state = {
        "conv.weight": generator.standard_normal((6, 3, 3, 3)).astype(np.float32),
        "norm.weight": generator.uniform(0.5, 2, 6).astype(np.float32),
        "norm.bias": np.zeros(6, np.float32),
        "norm.running_mean": np.zeros(6, np.float32),
        "norm.running_var": generator.uniform(0.5, 2, 6).astype(np.float32),
    }
    factor = state["norm.weight"] / np.sqrt(state["norm.running_var"] + 1e-5)
    folded = state["conv.weight"] * factor[:, None, None, None]
    scale = (np.abs(folded).max((1, 2, 3)) / 127).astype(np.float32)
    numbers = np.round(folded / scale[:, None, None, None]).astype(np.int8)
    for wrong in (False, True):
        given = scale * np.where(np.arange(6) == 2, 1 + wrong, 1).astype(np.float32)
        parts = {"q": numbers, "scale": given, "zero": np.zeros(6, np.int8)}
        (match,) = matches(_convolution(parts), state)
        assert "conv.weight" in match.original
        assert (match.problem is not None) == wrong


def _convolution(parts: dict[str, np.ndarray]) -> Graph:
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in "xy")
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    weights = [numpy_helper.from_array(values, name) for name, values in parts.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 17)]
    return make_graph(onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets)))

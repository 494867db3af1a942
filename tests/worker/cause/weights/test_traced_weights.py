"""Weights are traced to the original's without running anything."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.matching.weight_derivation import resembles
from convkit.worker.cause.weights.traced_weights import WeightReport, compare_weights


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.memory = torch.nn.LSTM(8, 6, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.conv(x)).flatten(2).transpose(1, 2)
        return self.memory(self.second(torch.relu(self.first(x))))[0]


@pytest.fixture(scope="module")
def exported() -> tuple[Graph, dict[str, np.ndarray]]:
    torch.manual_seed(3)
    module = Net().eval()
    module.norm.running_mean.normal_()
    module.norm.running_var.uniform_(0.5, 2.0)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            module, (torch.randn(1, 3, 6, 6),), stream, dynamo=False, opset_version=17
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(stream.getvalue())))
    return graph, {name: each.numpy() for name, each in module.state_dict().items()}


def changed(
    exported: tuple[Graph, dict[str, np.ndarray]],
    original: str,
    change: Callable[[np.ndarray], np.ndarray],
) -> tuple[str, WeightReport]:
    """Change the weight that holds an entry of the state dict, and compare."""
    graph, state = exported
    matches = compare_weights(graph, state).matches
    name = next(match.weight for match in matches if original in match.sources)
    values = change(graph.constants[name].copy()).astype(np.float32)
    return name, compare_weights(graph.with_nodes(graph.nodes, {name: values}), state)


def test_every_weight_of_an_export_is_found_and_none_differs(
    exported: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    report = compare_weights(*exported)
    assert report.differences == ()
    assert report.missing == ()
    found = {source for match in report.matches for source in match.sources}
    assert {"first.weight", "norm.running_var", "memory.weight_hh_l0_reverse"} <= found


def one_row(values: np.ndarray) -> np.ndarray:
    values[2] *= 3
    return values


def not_a_number(values: np.ndarray) -> np.ndarray:
    values.flat[1] = np.nan
    return values


@pytest.mark.parametrize("original", ["first.bias", "second.weight", "conv.weight"])
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda v: v * 1.5, "scaled"),
        (lambda v: -v, "scaled"),
        (lambda v: v.astype(np.float16), "rounded"),
        (lambda v: v + 0.25, "shifted"),
        (lambda v: v[::-1], "permuted"),
        (lambda v: v.clip(-0.05, 0.05), "clipped"),
        (lambda v: v + 1e-3 * np.random.default_rng(0).standard_normal(v.shape), "noise"),
        (one_row, "some-rows"),
        (not_a_number, "not-finite"),
    ],
)
def test_a_change_is_named(
    exported: tuple[Graph, dict[str, np.ndarray]],
    original: str,
    change: Callable[[np.ndarray], np.ndarray],
    kind: str,
) -> None:
    name, report = changed(exported, original, change)
    (difference,) = report.differences
    assert (difference.weight, difference.likeness.kind) == (name, kind)
    assert original in difference.sources
    assert np.isfinite(difference.corrected).all()


def test_exchanged_weights_are_named_by_each_other(
    exported: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    graph, state = exported
    swap = {
        "first.bias": graph.constants["second.bias"],
        "second.bias": graph.constants["first.bias"],
    }
    report = compare_weights(graph.with_nodes(graph.nodes, swap), state)
    assert {(each.weight, each.instead) for each in report.differences} == {
        ("first.bias", "second.bias"),
        ("second.bias", "first.bias"),
    }


def test_exchanged_weights_are_corrected_in_the_layout_in_which_they_are_stored() -> None:
    """Nothing else in the graph says that a product stores its weight transposed."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,4] x) => (float[n,4] y) { h = MatMul(x, a) t = Tanh(h) y = MatMul(t, b) }"""
    drawn = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    state = {"first.weight": drawn[0], "second.weight": drawn[1]}
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.ascontiguousarray(drawn[index].T), name)
        for index, name in ((1, "a"), (0, "b"))
    )
    for node, module in zip(model.graph.node, ("first", "", "second"), strict=True):
        node.name = f"/{module}/{node.op_type}"
    report = compare_weights(make_graph(onnx_ir.from_proto(model)), state)
    corrected = {each.weight: each.corrected for each in report.differences}
    assert np.array_equal(corrected["a"], drawn[0].T)
    assert np.array_equal(corrected["b"], drawn[1].T)


def test_weights_of_another_model_are_unknown_and_the_original_s_missing(
    exported: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    graph, state = exported
    state = {name: values for name, values in state.items() if not name.startswith("second")}
    report = compare_weights(graph, state)
    assert report.differences == ()
    assert "second.bias" in report.unknown
    held = {name: values for name, values in graph.constants.items() if name != "first.bias"}
    without = graph.with_nodes([n for n in graph.nodes if "first.bias" not in n.input], held)
    assert "first.bias" in compare_weights(without, exported[1]).missing


def in_order(values: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """Return stacked weights with their four gates in another order."""
    parts = np.split(values, 4 * (2 if values.ndim == 2 else 1), axis=1)
    places = [half + place for half in range(0, len(parts), 4) for place in order]
    return np.concatenate([parts[place] for place in places], axis=1)


# ONNX's is input, output, forget, cell.
ORDERS = {
    (0, 2, 3, 1): "input, forget, cell, output",  # torch's
    (1, 0, 2, 3): "output, input, forget, cell",
    (2, 0, 3, 1): "forget, input, cell, output",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("part", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"])
def test_gates_in_another_order_are_named(
    exported: tuple[Graph, dict[str, np.ndarray]], part: str, order: tuple[int, ...]
) -> None:
    name, report = changed(exported, f"memory.{part}", lambda values: in_order(values, order))
    (difference,) = report.differences
    assert difference.weight == name
    assert difference.original.startswith(f"memory.{part}")
    wanted = (
        f"its gates are in the order {ORDERS[order]}, and ONNX's is input, output, forget, cell"
    )
    assert difference.likeness.text == wanted


def test_torchs_order_of_gates_is_wrong_under_any_name() -> None:
    """The values of a GRU's weight as they are: a converter that forgot to reorder them."""
    torch.manual_seed(1)
    state = {name: each.detach().numpy() for name, each in torch.nn.GRU(4, 5).state_dict().items()}
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 2, 4])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 1, 2, 5])]
    right = np.concatenate(
        [state["weight_hh_l0"][place * 5 : place * 5 + 5] for place in (1, 0, 2)]
    )
    for name, recurrent, faults in (
        ("r", right, 0),
        ("r", state["weight_hh_l0"], 1),
        ("weight_hh_l0", state["weight_hh_l0"], 1),
    ):
        gates = [state["weight_ih_l0"][place * 5 : place * 5 + 5] for place in (1, 0, 2)]
        node = onnx.helper.make_node("GRU", ["x", "w", name], ["y"], hidden_size=5)
        weights = [
            onnx.numpy_helper.from_array(values[None], each)
            for each, values in (("w", np.concatenate(gates)), (name, recurrent))
        ]
        graph = onnx.helper.make_graph([node], "g", inputs, outputs, weights)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        report = compare_weights(make_graph(onnx_ir.from_proto(model)), state)
        texts = [each.likeness.text for each in report.differences]
        assert len(texts) == faults
        assert all("reset, update, new, and ONNX's is update, reset, new" in each for each in texts)


@pytest.mark.parametrize(
    ("size", "correlation", "is_version"),
    [(9, 0.7, False), (9, 0.95, True), (64, 0.7, True), (64, 0.3, False), (3, 0.9, False)],
)
def test_few_values_that_correlate_by_chance_are_not_versions_of_each_other(
    size: int, correlation: float, is_version: bool
) -> None:
    numbers = np.random.default_rng(2).normal(size=(size, 3))
    across, _ = np.linalg.qr(np.column_stack([np.ones(size), numbers]))
    one, other = across[:, 1], across[:, 2]
    mixed = correlation * one + np.sqrt(1 - correlation**2) * other
    assert resembles(one, mixed) is is_version

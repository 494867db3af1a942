"""Biases, blocks and tables that a graph lacks or holds wrongly, and nodes that only seem extra."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from torch import nn

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.search_types.search_results import Diagnosis

X = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1))


class Model(nn.Module):
    """A body of layers, and a function that computes with them."""

    def __init__(self, forward: Callable[["Model", torch.Tensor], torch.Tensor], **layers) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.call = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x)


def exported(model: nn.Module) -> onnx.ModelProto:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            *(model, (X,), buffer), dynamo=False, input_names=["x"], output_names=["y"]
        )
    return onnx.load_from_string(buffer.getvalue())


def diagnosed(model: nn.Module, graph: onnx.ModelProto) -> Diagnosis:
    recording = record(model, {"x": X}, ("y",))
    state = state_of(model)
    return localize(recording, make_graph(onnx_ir.from_proto(graph)), {"x": X.numpy()}, state)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_without_its_bias_is_named(layer: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    rnn = layer(6, 4, batch_first=True, bidirectional=True)
    model = Model(lambda m, x: m.head(m.rnn(x)[0]), rnn=rnn, head=nn.Linear(8, 3)).eval()
    graph = exported(model)
    node = next(each for each in graph.graph.node if each.op_type == layer.__name__)
    node.input[3] = ""
    diagnosis = diagnosed(model, graph)
    (cause,) = diagnosis.causes
    assert (cause.kind, cause.node, cause.module) == ("missing", node.name, "rnn")
    assert "lacks a bias, the original's rnn.bias_ih_l0 and rnn.bias_hh_l0" in cause.text
    assert not diagnosis.remaining > 1e-5


def test_another_checkpoint_of_a_recurrent_model_is_recognized() -> None:
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        rnn = nn.LSTM(6, 4, batch_first=True, bidirectional=True)
        return Model(lambda m, x: m.head(m.rnn(x)[0]), rnn=rnn, head=nn.Linear(8, 3)).eval()

    assert diagnosed(made(0), exported(made(1))).causes[0].kind == "checkpoint"


def test_a_block_that_is_called_once_less_is_named_by_its_modules() -> None:
    torch.manual_seed(0)
    layers = {"up": nn.Linear(6, 16), "down": nn.Linear(16, 6), "norm": nn.LayerNorm(6)}

    def calls(count: int) -> Callable[[Model, torch.Tensor], torch.Tensor]:
        def forward(m: Model, x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = x + m.down(nn.functional.silu(m.up(m.norm(x)))) * 0.5
            return m.head(x)

        return forward

    head = nn.Linear(6, 3)
    graph = exported(Model(calls(1), **layers, head=head).eval())
    cause = diagnosed(Model(calls(4), **layers, head=head).eval(), graph).causes[0]
    assert cause.kind == "missing"
    assert "operations of norm, up, down" in cause.text


@pytest.mark.parametrize(("wrong", "right"), [(4.0, 8.0), (3.0, 1.5)])
def test_a_node_that_the_original_has_as_well_is_not_extra(wrong: float, right: float) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)

    def model(factor: float) -> nn.Module:
        def forward(m: Model, x: torch.Tensor) -> torch.Tensor:
            size = torch.exp(m.layer(x)) * factor
            return torch.cat([x - (size / 2).mean(-1, keepdim=True), size / 2], -1)

        return Model(forward, layer=layer).eval()

    cause = diagnosed(model(right), exported(model(wrong))).causes[0]
    assert cause.kind == "constant"
    assert f"is {wrong:g} and should be {right:g}" in cause.text


def test_an_epsilon_that_is_tiny_beside_its_sum_is_not_taken_for_none() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)

    def model(epsilon: float) -> nn.Module:
        def forward(m: Model, x: torch.Tensor) -> torch.Tensor:
            weights = nn.functional.elu(m.layer(x)) + 1
            total = (weights @ weights.sum(1).unsqueeze(-1)) * 4
            return weights / (total + epsilon)

        return Model(forward, layer=layer).eval()

    cause = diagnosed(model(1e-3), exported(model(1.0))).causes[0]
    assert cause.kind == "constant"
    assert cause.after < 1e-4 < cause.before
    assert "is 1 and should be 0.001" in cause.text


def test_a_folded_mask_of_another_comparison_is_named() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 6)

    def model(strict: bool) -> nn.Module:
        places = np.arange(5)
        compared = np.less if strict else np.less_equal
        hidden = compared(places[:, None], places[None])

        def forward(m: Model, x: torch.Tensor) -> torch.Tensor:
            rows = torch.arange(5)
            mask = rows[:, None] < rows[None] if strict else torch.from_numpy(hidden)
            y = m.layer(x)
            return (y @ y.transpose(1, 2)).masked_fill(mask, -2.0)

        return Model(forward, layer=layer).eval()

    cause = diagnosed(model(strict=True), exported(model(strict=False))).causes[0]
    assert cause.kind == "constant"
    assert "the result of the original's lt" in cause.text
    assert "5 of 25 elements differ" in cause.text


@pytest.mark.thorough
def test_a_group_norm_of_other_groups_is_named() -> None:
    torch.manual_seed(0)

    def model(groups: int) -> nn.Module:
        def forward(m: Model, x: torch.Tensor) -> torch.Tensor:
            return m.norm(x.transpose(1, 2) * 1.5)

        return Model(forward, norm=nn.GroupNorm(groups, 6)).eval()

    cause = diagnosed(model(3), exported(model(2))).causes[0]
    assert cause.kind == "attribute"
    assert "it normalizes 2 groups of channels and should normalize 3" in cause.text


def test_a_long_recurrent_layer_is_one_operation_of_the_recording() -> None:
    torch.manual_seed(0)
    rnn = nn.GRU(3, 4, batch_first=True)
    model = Model(lambda m, x: m.rnn(x)[0], rnn=rnn).eval()
    x = torch.randn(1, 50, 3)
    recording = record(model, {"x": x}, ("y",))
    assert [each.kind for each in recording.operations if each.module == "rnn"].count("gru") == 1
    assert len(recording.operations) < 50  # decomposed, a dozen for each of the steps
    with torch.no_grad():
        assert np.array_equal(recording.output("y"), model(x).numpy())

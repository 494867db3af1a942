"""Recurrent layers: their activations, the states they begin with, and what reads their results."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Cause

pytestmark = pytest.mark.processors


class Recurrent(torch.nn.Module):
    """A plain recurrent layer with its own loop beside it."""

    def __init__(self, kind: str = "relu", start: float = 0.0, ending: str = "tanh") -> None:
        super().__init__()
        self.layer = torch.nn.RNN(4, 6, nonlinearity=kind, batch_first=True, bidirectional=True)
        self.deep = torch.nn.LSTM(12, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.cell = torch.nn.LSTMCell(12, 6)
        self.last = torch.nn.Linear(6, 3)
        self.start, self.ending = start, ending

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = getattr(torch, self.ending)(self.deep(self.layer(x)[0])[0])
        state = torch.full((x.shape[0], 6), self.start), torch.full((x.shape[0], 6), self.start)
        for step in range(3):
            state = self.cell(y[:, step], state)
        return self.last(state[0])


def causes_of(wrong: Recurrent) -> tuple[Cause, ...]:
    """Return what is found in the export of a changed copy of the model."""
    torch.manual_seed(4)
    right = Recurrent().eval()
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(3, 3, 4)
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            wrong.eval(),
            (x,),
            stream,
            dynamo=False,
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}},
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(stream.getvalue())))
    state = {name: each.numpy() for name, each in right.state_dict().items()}
    diagnosis = localize(record(right, {"x": x}, ("y",)), graph, {"x": x.numpy()}, state)
    assert diagnosis.remaining < 1e-5
    return diagnosis.causes


@pytest.mark.parametrize(
    ("wrong", "count", "kind", "text"),
    [
        (
            lambda: Recurrent("tanh"),
            1,
            "attribute",
            "activations is ['Tanh', 'Tanh'] and should be ['Relu', 'Relu']",
        ),
        (lambda: Recurrent(start=1.0), 2, "attribute", "value is 1 and should be 0"),
        (lambda: Recurrent(ending="sigmoid"), 1, "operator", "it should be the original's tanh"),
    ],
    ids=["activations", "both states", "small values"],
)
@pytest.mark.sampled(2)
@pytest.mark.slow
def test_a_fault_of_a_recurrent_layer_is_named(
    wrong: Callable[[], Recurrent], count: int, kind: str, text: str
) -> None:
    causes = causes_of(wrong())
    assert [cause.kind for cause in causes] == [kind] * count
    assert all(text in cause.text for cause in causes)


def test_zeros_in_place_of_any_values_are_not_rounded_down() -> None:
    """Zeros are the floor of all values below 1, and much else of them."""
    text = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y) <float half = {0.5}> {
    s = Sigmoid (x)
    y = Mul (s, half)
}
"""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))

    class Nothing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x) * 0.0

    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    diagnosis = localize(record(Nothing(), {"x": x}, ("y",)), graph, {"x": x.numpy()}, {})
    assert [cause.text for cause in diagnosis.causes] == ["Mul y: half is 0.5 and should be 0"]
    assert not np.any(diagnosis.remaining)

"""Arguments of torch's operations that an exporter lost, whatever nodes it wrote instead."""

import io
import warnings
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from torch.nn import functional as F

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.operation_replay import TorchReplay
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Cause

X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(2))
Step = Callable[[torch.Tensor], torch.Tensor]


class Net(torch.nn.Module):
    """Two layers with a step between them."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.first, self.last, self.step = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3), step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.step(self.first(x)))


def causes(right: Step, wrong: Step) -> tuple[Cause, ...]:
    torch.manual_seed(0)
    model, other, buffer = Net(right).eval(), Net(wrong).eval(), io.BytesIO()
    other.load_state_dict(model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            *(other, (X,), buffer), dynamo=False, input_names=["x"], output_names=["y"]
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(buffer.getvalue())))
    recording = record(model, {"x": X}, ("y",))
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return localize(recording, graph, {"x": X.numpy()}, state).causes


@pytest.mark.parametrize(
    ("right", "wrong", "text"),
    [
        (
            lambda y: y - F.softplus(y, beta=2.0),
            lambda y: y - F.softplus(y),
            "it computes softplus with beta 1 and should with 2",
        ),
        (
            lambda y: y * (y.amin((1, 2), keepdim=True) - 0.5).sigmoid(),
            lambda y: y * (y.amin() - 0.5).sigmoid(),
            "it computes amin with dim [0, 1, 2] and should with [1, 2]",
        ),
    ],
    ids=["beta", "axes"],
)
def test_an_argument_that_was_lost_is_named(right: Step, wrong: Step, text: str) -> None:
    cause = causes(right, wrong)[0]
    assert cause.kind == "attribute"
    assert text in cause.text
    assert cause.after < cause.before / 1000


def test_the_same_arguments_are_no_cause() -> None:
    def step(y: torch.Tensor) -> torch.Tensor:
        return y - F.softplus(y, beta=2.0)

    assert not causes(step, step)


def test_a_recorded_operation_is_called_again_with_other_values_and_arguments() -> None:
    class Clamped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 0).clamp_(min=-0.5, max=0.5)

    recording = record(Clamped(), {"x": X}, ("y",))
    clamp = next(each for each in recording.operations if each.kind == "clamp_")
    assert isinstance(clamp.replay, TorchReplay)
    number, half = clamp.inputs[0], X.numpy() / 2
    (again,) = clamp.replay({}, {})
    assert np.array_equal(again, recording.output("y"))
    (other,) = clamp.replay({number: half}, {"min": None})
    assert np.array_equal(other, half.clip(max=0.5))


class Pooled(torch.nn.Module):
    """A text model that returns the state at a marked token, or at a fixed one."""

    def __init__(self, fixed: int | None = None) -> None:
        super().__init__()
        self.words, self.last, self.fixed = torch.nn.Embedding(20, 6), torch.nn.Linear(6, 3), fixed

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = torch.tanh(self.words(ids))
        states = states + states.cumsum(1)
        place = ids.argmax(-1)
        if self.fixed is not None:
            place = torch.full_like(place, self.fixed)
        return self.last(states[torch.arange(len(ids)), place])


@pytest.mark.parametrize("fixed", [0, 6])
def test_one_index_for_all_in_place_of_a_computed_one_is_named(fixed: int) -> None:
    torch.manual_seed(0)
    right, wrong, buffer = Pooled().eval(), Pooled(fixed).eval(), io.BytesIO()
    wrong.load_state_dict(right.state_dict())
    ids = torch.randint(0, 19, (3, 7), generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            *(wrong, (ids,), buffer), dynamo=False, input_names=["ids"], output_names=["y"]
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(buffer.getvalue())))
    state = {name: tensor.numpy() for name, tensor in right.state_dict().items()}
    found = localize(record(right, {"ids": ids}, ("y",)), graph, {"ids": ids.numpy()}, state)
    (cause,) = found.causes
    assert f"reads index {fixed} everywhere and should read what argmax finds" in cause.text
    assert cause.after < 1e-5 < cause.before


def test_recurrent_layers_are_called_as_they_were() -> None:
    """Their kernels read past the end of what is smaller than their arguments say."""

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x * 2)[0] + 1

    recording = record(Last().eval(), {"x": torch.ones(2, 5, 3)}, ("y",))
    (layer,) = (each for each in recording.operations if "rnn" in each.name)
    assert isinstance(layer.replay, TorchReplay)
    assert not list(layer.replay.others())
    read = next(each for each in layer.inputs if recording.values[each].array.ndim == 3)
    small = recording.values[read].array[..., :1]
    with pytest.raises(ValueError, match="a recurrent layer takes"):
        layer.replay({read: small}, {})

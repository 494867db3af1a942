"""Norms that use their own input's statistics where the original uses those of its training."""

import io
import warnings

import onnx
import onnx_ir
import pytest
import torch
from torch import nn

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.search_types.search_results import Cause

X = torch.randn(3, 3, 9, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A convolution, a norm, and a linear layer; `own` are axes to take the statistics over."""

    def __init__(self, norm: nn.Module, own: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv1d(3, 5, 3), norm, nn.Linear(7, 4)
        self.own = own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.own:
            mean, centered = y.mean(self.own, keepdim=True), y - y.mean(self.own, keepdim=True)
            deviation = (centered.square().mean(self.own, keepdim=True) + self.norm.eps).sqrt()
            normal = (y - mean) / deviation
            y = normal * self.norm.weight[:, None] + self.norm.bias[:, None]
        else:
            y = self.norm(y)
        return self.last(torch.tanh(y))


def causes(norm: nn.Module, own: tuple[int, ...]) -> tuple[Cause, ...]:
    """Export a model with the norm's own statistics, and search it for what is wrong."""
    torch.manual_seed(0)
    for name in ("weight", "running_var"):
        nn.init.uniform_(getattr(norm, name), 0.5, 1.5)
    for name in ("bias", "running_mean"):
        nn.init.uniform_(getattr(norm, name), -0.5, 0.5)
    right = Net(norm).eval()
    wrong = Net(norm, own).eval()
    wrong.load_state_dict(right.state_dict())
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            *(wrong, (X,), buffer), dynamo=False, input_names=["x"], output_names=["y"]
        )
    recording = record(right, {"x": X}, ("y",))
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(buffer.getvalue())))
    return localize(recording, graph, {"x": X.numpy()}, state_of(right)).causes


@pytest.mark.parametrize(
    ("norm", "own"),
    [
        (nn.BatchNorm1d(5, eps=1e-3), (0, 2)),
        (nn.InstanceNorm1d(5, affine=True, track_running_stats=True), (2,)),
    ],
    ids=["batch", "instance"],
)
def test_statistics_as_in_training_are_named(norm: nn.Module, own: tuple[int, ...]) -> None:
    cause = causes(norm, own)[0]
    assert (cause.kind, cause.module) == ("attribute", "norm")
    assert "native_batch_norm as in training, with the mean and variance of its own" in cause.text
    assert cause.after < cause.before / 1000


def test_the_trained_statistics_are_no_cause() -> None:
    assert not causes(nn.BatchNorm1d(5), ())

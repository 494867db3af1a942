"""A size of a tensor that a graph reads where the original reads a value."""

import io
import warnings

import onnx
import onnx_ir
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.search_types.search_results import Cause

X = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(3))
KEEP = (torch.arange(5)[None] < torch.tensor([[5], [3], [2]])).float()


class Pooled(torch.nn.Module):
    """Averages what a mask keeps; `whole` divides by the number of all positions."""

    def __init__(self, *, whole: bool) -> None:
        super().__init__()
        self.first, self.last, self.whole = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2), whole

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        total = (torch.tanh(self.first(x)) * keep[..., None]).sum(1)
        count = keep.shape[1] if self.whole else keep.sum(1, keepdim=True)
        return self.last(total / (count + 0.25))


def causes(*, whole: bool) -> tuple[Cause, ...]:
    torch.manual_seed(0)
    right, other, buffer = Pooled(whole=False).eval(), Pooled(whole=whole).eval(), io.BytesIO()
    other.load_state_dict(right.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            *(other, (X, KEEP), buffer),
            dynamo=False,
            input_names=["x", "keep"],
            output_names=["y"],
            dynamic_axes={"x": {1: "n"}, "keep": {1: "n"}},
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(buffer.getvalue())))
    feeds = {"x": X, "keep": KEEP}
    arrays = {name: tensor.numpy() for name, tensor in feeds.items()}
    return localize(record(right, feeds, ("y",)), graph, arrays, state_of(right)).causes


def test_a_mean_over_all_positions_is_named() -> None:
    cause = causes(whole=True)[0]
    assert cause.kind == "wiring"
    assert "a size of keep and should read the result of the original's sum" in cause.text
    assert cause.after < cause.before / 1000


def test_a_mean_over_what_is_kept_is_right() -> None:
    assert not causes(whole=False)

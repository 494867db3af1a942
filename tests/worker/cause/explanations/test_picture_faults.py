"""Mistakes in how pictures are padded, ordered and pooled, found in the whole graph."""

import io
import warnings
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.explanations.stored_constants import weights
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Diagnosis


class Picture(torch.nn.Module):
    """Convolutions and what is `wrong` with them. Height and width are equal, so that every mistake
    runs.
    """

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong
        self.stem, self.edge = (torch.nn.Conv2d(2, 4, 3), torch.nn.Conv2d(4, 4, 3, padding=1))
        self.narrow, self.last = torch.nn.Linear(4, 4), torch.nn.Conv2d(1, 2, 3, padding=1)
        self.places = torch.nn.Parameter(torch.randn(1, 17, 4))

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        mode = {"zeros": "constant", "wrapped": "circular"}.get(self.wrong, "reflect")
        return torch.nn.functional.pad(x, (1, 1, 1, 1), mode=mode)

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        functional = torch.nn.functional
        if self.wrong == "one side":
            return functional.max_pool2d(functional.pad(x, (0, 1, 0, 1)), 3, 2)
        return functional.max_pool2d(x, 3, 2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(self.padded(x))
        if self.wrong == "wrapped inside":
            x = torch.nn.functional.conv2d(
                torch.nn.functional.pad(x, (1, 1, 1, 1), mode="circular"),
                self.edge.weight,
                self.edge.bias,
            )
        else:
            x = self.edge(x)
        axes = (0, 3, 2, 1) if self.wrong == "turned" else (0, 2, 3, 1)
        x = x + torch.tanh(self.narrow(x.permute(axes))).permute(0, 3, 1, 2)
        x = self.pooled(x)
        x = x + self.places[:, 1:].transpose(1, 2).reshape(1, 4, 4, 4)
        if self.wrong == "shuffle":
            x = x.reshape(-1, 1, 2, 2, 4, 4).permute(0, 1, 4, 3, 5, 2).reshape(-1, 1, 8, 8)
        else:
            x = torch.nn.functional.pixel_shuffle(x, 2)
        x = self.last(x)
        if self.wrong == "mean":
            return x.mean((2, 3))
        return torch.nn.functional.avg_pool2d(x, 4).flatten(2).amax(-1)


def diagnosed(wrong: str) -> Diagnosis:
    """Export a picture model with a mistake, and search for it."""
    torch.manual_seed(0)
    right, mistaken = Picture().eval(), Picture(wrong).eval()
    state = right.state_dict()
    mistaken.load_state_dict(state)
    given = {"x": torch.randn(2, 2, 8, 8)}
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations and what it says about tracing
        torch.onnx.export(
            mistaken,
            tuple(given.values()),
            stream,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
        )
    graph = make_graph(onnx_ir.from_proto(onnx.load_from_string(stream.getvalue())))
    feeds: dict[str, np.ndarray] = {name: each.numpy() for name, each in given.items()}
    own = {name: each.numpy() for name, each in state.items()}
    return localize(record(right, given, ("y",)), graph, feeds, own)


@pytest.mark.parametrize(
    ("wrong", "kind", "text", "line"),
    [
        ("zeros", "attribute", "mode is constant and should be reflect", "mode=mode"),
        ("wrapped", "attribute", "with a reflection", "mode=mode"),
        pytest.param(
            *("wrapped inside", "attribute", "padded by [1, 1, 1, 1] with zeros", "self.edge(x)"),
            marks=pytest.mark.thorough,
        ),
        ("one side", "attribute", "padded by [1, 1, 1, 1] with zeros", "padding=1)"),
        ("turned", "attribute", "perm is [0, 3, 2, 1] and should be [0, 2, 3, 1]", "x.permute"),
        ("shuffle", "order", "should be the result of the original's pixel_shuffle", "pixel_sh"),
        ("mean", "place", "computes here: avg_pool2d, amax", "avg_pool2d"),
    ],
)
@pytest.mark.sampled(3)
def test_the_mistake_is_named_in_its_line(wrong: str, kind: str, text: str, line: str) -> None:
    diagnosis = diagnosed(wrong)
    cause = diagnosis.causes[0]
    assert cause.kind == kind
    assert text in cause.text
    assert diagnosis.remaining < 2e-5
    assert cause.source is not None
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert line in lines[int(cause.source.rpartition(":")[2]) - 1]


def test_a_part_of_a_weight_is_compared_with_that_part_of_the_original_s() -> None:
    graph = make_graph(
        onnx_ir.from_proto(
            onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["": 17]>
            g (float[2,1] x) => (float[N,3] y) <float[2,3] part = {0, 0, 0, 0, 0, 0}>
              { y = Mul (x, part) }
            """)
        )
    )
    weight = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    x = np.ones((2, 1), np.float32)
    place = Region(graph, "y", {"x": x}, weight[1:], (), {"places": weight}, (), {"y": (2, 3)})
    (rewrite,) = [each for each in weights(place) if not place.error(each.graph) > 0]
    assert rewrite.text == "the weight part should hold the original's places, 1 to 2 along axis 0"


def test_no_mistake_is_no_cause() -> None:
    diagnosis = diagnosed("")
    assert diagnosis.error < 2e-5
    assert not diagnosis.causes


def test_a_padding_at_the_other_side_is_named_by_its_amounts() -> None:
    """Zeros at the other side are also a shift by one: that is how it shows, not what is wrong."""
    torch.manual_seed(0)
    right = torch.nn.Sequential(torch.nn.ZeroPad2d((0, 1, 0, 1)), torch.nn.Conv2d(2, 3, 3, 2))
    weight, bias = (each.detach().numpy() for each in right[1].parameters())
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float[2, 2, 8, 8] x) => (float[2, 3, 4, 4] y) {
            wider = Pad(x, amounts)
            y = Conv<kernel_shape = [3, 3], strides = [2, 2]>(wider, weight, bias)
        }
    """)
    amounts = np.array([0, 0, 1, 1, 0, 0, 0, 0])
    for name, values in (("amounts", amounts), ("weight", weight), ("bias", bias)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    x = torch.randn(2, 2, 8, 8)
    graph = make_graph(onnx_ir.from_proto(model))
    state = {"1.weight": weight, "1.bias": bias}
    found = localize(record(right, {"x": x}, ("y",)), graph, {"x": x.numpy()}, state)
    (cause,) = found.causes
    wanted = "pads is [0, 0, 1, 1, 0, 0, 0, 0] and should be [0, 0, 0, 0, 0, 0, 1, 1]"
    assert (cause.kind, cause.node) == ("attribute", "wider")
    assert wanted in cause.text

"""A search that runs out of time says so, with what it found until then."""

import numpy as np
import onnx.parser
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of

COSINE = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) {
    a = Cos(x) b = Exp(a) c = Mul(x, x) y = Add(b, c)
}"""


@pytest.mark.parametrize(("seconds", "ended"), [(0.0, 0.0), (60.0, None)])
def test_only_a_search_out_of_time_has_ended_early(seconds: float, ended: float | None) -> None:
    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(torch.sin(x)) + x * x

    x = torch.linspace(-2, 2, 4)
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(COSINE)))
    recording = record(Sine(), {"x": x}, ("y",))
    found = localize(recording, graph, {"x": np.asarray(x)}, {}, seconds=seconds)
    assert found.seconds == ended
    assert bool(found.causes) == (ended is None)


def test_what_was_found_says_that_the_search_ended() -> None:
    cause = Cause("attribute", "epsilon is off", node="n", before=1.0, after=0.5)
    (whole,) = findings_of(Diagnosis(1.0, 0.5, (cause,)), "smallest")
    (ended,) = findings_of(Diagnosis(1.0, 0.5, (cause,), 120.0), "smallest")
    left = "; the search ended after 120 s, so there may be further causes"
    assert ended.message == whole.message + left

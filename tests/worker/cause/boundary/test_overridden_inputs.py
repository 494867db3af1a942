"""A constant that nodes read in the place of an input."""

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.protocol.findings.finding import Finding
from convkit.worker.cause.boundary.boundary_faults import outputs_error
from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.overridden_inputs import overridden_input
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.wording.cause_findings import findings_of


class Masked(torch.nn.Module):
    """Reads its mask in three places, as attention of three layers does."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(20, 6)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(3))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.words(ids)
        for layer in self.layers:
            kept = torch.tanh(layer(y)) * mask[..., None].float()
            y = y + kept.sum(1, keepdim=True)
        return y


IDS = torch.randint(1, 20, (2, 5), generator=torch.Generator().manual_seed(2))
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
FEEDS = {"ids": IDS.numpy(), "mask": MASK.numpy()}
HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
ONES = {
    "times zero plus one": "nothing = Mul(mask, zero)  own = Add(nothing, one)",
    "of the input's sizes": "sizes = Shape(mask)  own = Expand(one, sizes)",
}


@pytest.fixture(scope="module")
def original() -> Masked:
    torch.manual_seed(1)
    return Masked().eval()


def graph_of(original: Masked, start: str, mask: str) -> Graph:
    layers = "".join(
        f"""
        linear{i} = MatMul(y{i}, weight{i})
        biased{i} = Add(linear{i}, bias{i})
        bent{i} = Tanh(biased{i})
        wide{i} = Unsqueeze({mask}, last)
        factor{i} = Cast<to = 1>(wide{i})
        kept{i} = Mul(bent{i}, factor{i})
        sum{i} = ReduceSum<keepdims = 1>(kept{i}, first)
        y{i + 1} = Add(y{i}, sum{i})
        """
        for i in range(3)
    )
    model = onnx.parser.parse_model(
        f"""{HEAD} agraph (int64[2, 5] ids, int64[2, 5] mask) => (float[2, 5, 6] y3) {{
            {start}
            y0 = Gather(words, ids)
            {layers}
        }}"""
    )
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "last": np.array([-1]),
        "first": np.array([1]),
        "words": original.words.weight.detach().numpy(),
    }
    for i, layer in enumerate(original.layers):
        constants[f"weight{i}"] = np.ascontiguousarray(layer.weight.detach().numpy().T)
        constants[f"bias{i}"] = layer.bias.detach().numpy()
    for name, values in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return make_graph(onnx_ir.from_proto(model))


@pytest.mark.parametrize("start", ONES.values(), ids=ONES)
def test_ones_in_the_place_of_a_mask_are_one_cause(original: Masked, start: str) -> None:
    recording = record(original, {"ids": IDS, "mask": MASK}, ("y3",))
    found = localize(recording, graph_of(original, start, "own"), FEEDS, state_of(original))
    finding: Finding
    (finding,) = findings_of(found, "padded")
    assert (finding.code, finding.place.tensor) == ("N407", "own")
    assert "it is 1 everywhere, and what reads it should read 'mask'" in finding.message
    assert found.remaining < 1e-5 < found.error


def test_a_constant_beside_another_fault_is_not_blamed(original: Masked) -> None:
    """What reads it would still be wrong with the mask in its place."""
    recording = record(original, {"ids": IDS, "mask": MASK}, ("y3",))
    graph = graph_of(original, ONES["times zero plus one"], "mask")
    swapped = {"weight0": graph.constants["weight1"], "weight1": graph.constants["weight0"]}
    wrong = graph.with_nodes(graph.nodes, swapped)
    error = outputs_error(recording, wrong, FEEDS)
    assert error > 1e-3
    assert overridden_input(GraphEdge(recording, wrong, FEEDS), error) is None

"""A runtime's kernel that is off, in a graph that is right."""

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.place.kernel_faults import blamed_on_kernels
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of

# onnxruntime 1.31 computes a transform of a length that is no power of two term by term in float32.
LENGTH = 1500
GRAPH = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[3, {LENGTH}] x) => (float[3, 4] y) {{
        complex = Unsqueeze(x, last)
        spectrum = DFT<axis = 1>(complex)
        real = Gather<axis = 2>(spectrum, first)
        changed = CHANGE(real)
        y = MatMul(changed, weight)
    }}
"""


class Spectrum(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(LENGTH, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.fft.fft(x).real)


def diagnosed(change: str) -> Diagnosis:
    torch.manual_seed(0)
    original = Spectrum().eval()
    x = torch.randn(3, LENGTH)
    model = onnx.parser.parse_model(GRAPH.replace("CHANGE", change))
    weight = np.ascontiguousarray(original.last.weight.detach().numpy().T)
    constants = {"last": np.array([-1]), "first": np.int64(0), "weight": weight}
    for name, values in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    graph = make_graph(onnx_ir.from_proto(model))
    recording = record(original, {"x": x}, ("y",))
    return localize(recording, graph, {"x": x.numpy()}, state_of(original))


@pytest.mark.thorough
def test_the_kernel_is_named_and_the_graph_is_not_blamed() -> None:
    (finding,) = findings_of(diagnosed("Identity"), "case")
    assert (finding.code, finding.place.tensor) == ("N408", "spectrum")
    assert f"onnxruntime {onnxruntime.__version__}'s kernel" in finding.message
    assert "the graph is right" in finding.message
    assert finding.evidence["owner"] == "kernel"
    assert finding.remedy is not None
    assert "tolerance" not in finding.remedy.text, "an error of 0.1 % is no rounding"


@pytest.mark.thorough
def test_a_graph_that_is_wrong_is_wrong_in_float64_too() -> None:
    (finding,) = findings_of(diagnosed("Sin"), "case")
    assert (finding.code, finding.place.node) == ("N408", "changed")
    assert "the graph is right" not in finding.message


class Enlarged(torch.nn.Module):
    """26 columns to 64: 26 / 64 has a float32 reciprocal that is too small for 13 of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=(64, 64), mode="nearest") * 2


def test_nodes_that_compute_sizes_are_not_blamed() -> None:
    x = torch.randn(1, 2, 26, 26)
    graph = make_graph(
        onnx_ir.from_proto(
            onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[1, 2, 26, 26] x) => (float[1, 2, 64, 64] y)
        <int64[2] wide = {64, 64}, float two = {2.0}> {
        front = Shape<start = 0, end = 2>(x)
        sizes = Concat<axis = 0>(front, wide)
        resized = Resize<mode = "nearest", nearest_mode = "floor",
            coordinate_transformation_mode = "asymmetric">(x, , , sizes)
        y = Mul(resized, two)
    }
    """)
        )
    )
    original = Enlarged().eval()
    found = localize(record(original, {"x": x}, ("y",)), graph, {"x": x.numpy()}, {})
    (finding,) = findings_of(found, "case")
    assert (finding.code, finding.place.node) == ("N408", "resized")
    assert "kernel is off in Resize resized" in finding.message
    assert finding.remedy is not None
    assert "tolerance" not in finding.remedy.text


def test_a_value_that_overflows_is_not_blamed_on_the_kernel() -> None:
    """A mask added twice: the smallest float32 number, twice, is minus infinity."""
    graph = make_graph(
        onnx_ir.from_proto(
            onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[2, 3] x, bool[2, 3] pad) => (float[2, 3] p)
        <float low = {-3.4028234663852886e38}, float zero = {0.0}> {
        mask = Where(pad, low, zero)
        once = Add(x, mask)
        both = Add(once, mask)
        p = Softmax<axis = -1>(both)
    }
    """)
        )
    )
    pad = np.array([[False, False, True], [True, True, True]])
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    masked = torch.from_numpy(x).masked_fill(torch.from_numpy(pad), torch.finfo(torch.float32).min)
    expected = masked.softmax(-1).numpy()
    region = Region(graph, "p", {"x": x, "pad": pad}, expected, (), {}, (), {})
    cause = blamed_on_kernels(Cause("place", "a place"), region)
    assert "Add both overflows" in cause.text
    assert (cause.tensor, cause.of_kernels) == ("both", False)


def test_nan_in_float64_too_is_the_graph_s() -> None:
    """A row that a mask hides whole: its softmax is NaN in any type, and torch's attention's 0."""
    graph = make_graph(
        onnx_ir.from_proto(
            onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[2, 3] x, float[2, 3] mask) => (float[2, 3] y) {
        sum = Add(x, mask)
        p = Softmax<axis = -1>(sum)
        y = Exp(p)
    }
    """)
        )
    )
    mask = np.array([[0, 0, -np.inf], [-np.inf] * 3], np.float32)
    x = np.ones((2, 3), np.float32)
    expected = np.array([[0.5, 0.5, 0], [0, 0, 0]], np.float32)
    region = Region(graph, "y", {"x": x, "mask": mask}, np.exp(expected), (), {}, (), {})
    cause = blamed_on_kernels(Cause("place", "a place"), region)
    assert cause.text == "a place; the first NaN is in Softmax p"
    assert not cause.of_kernels


RARE = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (float[4, 3] x) => (float[4, 3] y) {
        chance = OPERATOR(x)
        y = Log(chance)
    }
"""


class Rare(torch.nn.Module):
    """onnxruntime 1.31's Sigmoid leaves rounding errors below -16, where it resembles Softplus."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.sigmoid(x))


def diagnosed_rare(operator: str, offset: float) -> Diagnosis:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)) - offset
    model = onnx.parser.parse_model(RARE.replace("OPERATOR", operator))
    graph = make_graph(onnx_ir.from_proto(model))
    recording = record(Rare().eval(), {"x": x}, ("y",))
    return localize(recording, graph, {"x": x.numpy()}, {})


@pytest.mark.thorough
def test_a_kernel_that_resembles_another_function_is_off_and_right_in_float64() -> None:
    (finding,) = findings_of(diagnosed_rare("Sigmoid", 19), "case")
    assert (finding.code, finding.place.tensor) == ("N408", "chance")
    assert "kernel is off in Sigmoid" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.proven
    assert "by its formula" in finding.remedy.text


def test_another_function_is_named_where_it_is_one() -> None:
    (finding,) = findings_of(diagnosed_rare("Softplus", 0), "case")
    assert finding.code == "N405"
    assert "it computes Softplus" in finding.message
    assert "Sigmoid" in finding.message

"""The layout of a value is the one that comparing all elements under each would find."""

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.matching.axis_layouts import (
    AxisLayout,
    correlation,
    layout_of,
    layouts,
    likeliest_layout,
)
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.recording.torch_recording import record


def by_all_elements(expected: np.ndarray, found: np.ndarray) -> AxisLayout | None:
    errors = [
        (relative_error(found, layout.apply(expected)), place)
        for place, layout in enumerate(layouts(expected.shape, found.shape))
    ]
    error, place = min(errors)
    return layouts(expected.shape, found.shape)[place] if error <= CLOSE else None


def values(kind: str, generator: np.random.Generator) -> np.ndarray:
    array = generator.standard_normal((2, 5, 4, 3)).astype(np.float32)
    match kind:
        case "masked":
            array[:, :, 1] = -1e9
        case "masked by the type's least":
            array[:, 2:] = np.finfo(np.float32).min
        case "infinite":
            array[0, 1] = -np.inf
        case "not a number":
            array[1, 1, 1] = np.nan
        case "one large":
            array[0, 0, 0, 0] = 1e4
        case "repeated":
            array[:] = array[:1, :1, :1]
    return array


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 2, 1), (3, 1, 0, 2)])
@pytest.mark.parametrize(
    "kind",
    [
        *("plain", "masked", "masked by the type's least", "infinite", "not a number"),
        *("one large", "repeated"),
    ],
)
def test_the_best_layout_is_found(kind: str, axes: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    expected = values(kind, generator)
    for error in (0.0, 0.3 * CLOSE, 30 * CLOSE):
        with np.errstate(all="ignore"):
            found = expected.transpose(axes) * (1 + error)
        assert layout_of(expected, found) == by_all_elements(expected, found), error
    assert layout_of(expected, expected.transpose(axes).reshape(10, -1)) is not None


def test_other_values_have_no_layout() -> None:
    generator = np.random.default_rng(4)
    expected = generator.standard_normal((2, 5, 4, 3))
    assert layout_of(expected, generator.standard_normal((2, 5, 4, 3))) is None
    last = expected.copy()
    last[-1, -1, -1, -1] += 1  # only the element compared last is wrong
    assert layout_of(expected, last) is None


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_single_elements_have_a_layout(shape: tuple[int, ...]) -> None:
    for wanted in ((), (1,), (1, 1)):
        expected, found = np.full(shape, 2.5), np.full(wanted, 2.5)
        assert layout_of(expected, found) == likeliest_layout(expected, found)
        assert layout_of(expected, found + 1) is None
        assert correlation(likeliest_layout(expected, found), expected, found) == 0  # no variation


def test_an_output_without_axes_is_compared() -> None:
    """A loss, or a temperature."""

    class Mean(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (torch.tanh(x) * 3).mean()

    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    recording = record(Mean(), {"x": x}, ("y",))
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[4, 5] x) => (float y) '
        "{ t = Tanh(x) k = Constant<value_float = 2.0>() m = Mul(t, k) "
        "  y = ReduceMean<keepdims = 0>(m) }"
    )
    graph = make_graph(onnx_ir.from_proto(model))
    (cause,) = localize(recording, graph, {"x": x.numpy()}, {}).causes
    assert (cause.kind, cause.tensor) == ("constant", "k")
    assert cause.after < 1e-5 < cause.before
    assert "is 2 and should be 3" in cause.text

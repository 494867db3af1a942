"""Switched rounding against the simulation of the same plans: both must give the same numbers."""

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.simulated_graph import low_nodes, simulate, widen
from convkit.worker.precision.simulation.switched_rounding import SwitchedRounding
from convkit.worker.precision.tensor_statistics import open_session

pytestmark = pytest.mark.processors

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
net (float[N, 3] x, bool[N, 3] live) => (float[N, 3] y, float[N, 3] z)
<float[3, 3] w = {0.1, 0.7, -0.3, 1.1, 0.9, 0.2, -0.4, 0.6, 0.3}, float low = {-1e9}>
{
    h = MatMul(x, w)
    m = Where(live, h, low)
    s = Softmax<axis: int = -1>(m)
    shape = Shape(s)
    r = Reshape(s, shape)
    y = Mul(r, h)
    z = Sin(h)
}
"""
MODULES = {
    "MatMul": "first",
    "Where": "",
    "Softmax": "attention",
    "Reshape": "attention",
    "Mul": "last",
    "Sin": "last",
}


@pytest.fixture(scope="module")
def model() -> ir.Model:
    graph = ir.from_onnx_text(GRAPH)
    for node in graph.graph:
        if module := MODULES.get(node.op_type, ""):
            node.metadata_props["convkit.module"] = module
    return prepare(graph)


FEEDS = {
    "x": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32) * 10,
    "live": np.array([[1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0]], bool),
}
W = [[0.1, 0.7, -0.3], [1.1, 0.9, 0.2], [-0.4, 0.6, 0.3]]
NAMES = ("", "attention", "first", "last")


def simulated(model: ir.Model, kept: tuple[str, ...], *, saturate: bool) -> list[np.ndarray]:
    assignment = assign(model, PrecisionPlan("float16", tuple(f"{name}." for name in kept)))
    session = open_session(simulate(convert(model, assignment, saturate=saturate).model), None, 1)
    return session.run(["y", "z"], FEEDS)


@pytest.mark.parametrize("saturate", [False, True])
def test_every_set_of_low_modules_gives_what_its_simulation_gives(
    model: ir.Model, saturate: bool
) -> None:
    with SwitchedRounding(model, "float16", saturate=saturate, threads=1) as switched:
        assert sorted(switched.modules) == sorted(NAMES)
        different = set()
        for count in range(len(NAMES) + 1):
            for low in itertools.combinations(NAMES, count):
                found = switched.run(FEEDS, low)
                expected = simulated(
                    model, tuple(name for name in NAMES if name not in low), saturate=saturate
                )
                np.testing.assert_array_equal(found["y"], expected[0])
                np.testing.assert_array_equal(found["z"], expected[1])
                different.add(found["y"].tobytes() + found["z"].tobytes())
        assert len(different) > 8  # the switches do something


def test_without_low_modules_it_is_the_float32_graph(model: ir.Model) -> None:
    plain = open_session(model, None, 1).run(["y", "z"], FEEDS)
    with SwitchedRounding(model, "bfloat16", saturate=False) as switched:
        found = switched.run(FEEDS, ())
    np.testing.assert_array_equal(found["y"], plain[0])
    np.testing.assert_array_equal(found["z"], plain[1])


def test_a_widened_graph_rounds_nothing_but_its_weights(model: ir.Model) -> None:
    low = convert(model, assign(model, PrecisionPlan("float16"))).model
    wide = widen(prepare(low))
    assert low_nodes(prepare(low))
    assert not low_nodes(wide)
    session = open_session(wide, None, 1)
    weights = FEEDS["x"] @ np.array(W, np.float16).astype(np.float32)
    np.testing.assert_allclose(session.run(["z"], FEEDS)[0], np.sin(weights), atol=1e-5)

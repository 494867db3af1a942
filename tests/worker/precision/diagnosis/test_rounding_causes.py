"""The values whose rounding makes a low-precision graph miss its limits."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from convkit.protocol.messages import LowPrecision
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.precision.diagnosis.rounding_reasons import reason
from convkit.worker.precision.diagnosis.rounding_shares import (
    RoundingCause,
    copies_of,
    readers,
    rounding_cause,
)
from convkit.worker.precision.simulation.float32_graph import load_float32
from convkit.worker.precision.simulation.switched_rounding import SwitchedRounding, SwitchedValues

HEADER = '<ir_version: 8, opset_import: ["": 17]> g (float[2,6] x) => (float[2,6] y) '
X = np.random.default_rng(7).normal(size=(2, 6)).astype(np.float32)
HALF = LowPrecision("float16")


def model(text: str, folder: Path) -> ir.Model:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    return load_float32(path, "float16")[0]


def cause(text: str, folder: Path, limit: float) -> RoundingCause | None:
    graph = model(text, folder)
    with SwitchedValues(graph, HALF) as switched:
        exact = switched.run({"x": X}, ())["y"]

        def share(low: Collection[str]) -> float:
            return float(np.abs(switched.run({"x": X}, low)["y"] - exact).max() / limit)

        return rounding_cause(graph, switched.modules, share)


def test_every_value_has_a_switch_of_its_own(tmp_path: Path) -> None:
    graph = model("<float k = {0.1}> { h = Mul (x, k)  y = Tanh (h) }", tmp_path)
    with (
        SwitchedValues(graph, HALF) as values,
        SwitchedRounding(graph, "float16", saturate=False) as modules,
    ):
        assert set(values.modules) == {"x", "k", "h", "y"}
        none, every = values.run({"x": X}, ())["y"], values.run({"x": X}, values.modules)["y"]
        np.testing.assert_array_equal(none, modules.run({"x": X}, ())["y"])
        np.testing.assert_array_equal(every, modules.run({"x": X}, modules.modules)["y"])
        one = values.run({"x": X}, ["h"])["y"]
        half = (X * np.float32(0.1)).astype(np.float16).astype(np.float32)
        np.testing.assert_allclose(one, np.tanh(half), rtol=1e-6)
        assert np.abs(every - none).max() > 1e-5


def test_a_difference_of_large_values_is_named(tmp_path: Path) -> None:
    text = "<float k = {1000}> { t = Tanh (x)  h = Add (t, k)  y = Sub (h, k) }"
    found = cause(text, tmp_path, 0.02)
    assert found is not None
    assert found.values == ("h",)
    assert found.before > 5
    assert found.after < 0.1 > found.after_kept


def test_reshaped_copies_count_as_one_value(tmp_path: Path) -> None:
    text = """<float k = {1000}, int64[1] s = {12}, int64[2] t = {2, 6}> {
        h = Add (x, k)  a = Reshape (h, s)  b = Reshape (a, t)  y = Sub (b, k) }"""
    found = cause(text, tmp_path, 0.02)
    assert found is not None
    assert found.values == ("h",)
    assert copies_of(model(text, tmp_path), "h") == ["h", "a", "b"]
    assert [node.op_type for node in readers(model(text, tmp_path), ["h", "a", "b"])] == ["Sub"]


def test_values_of_which_each_alone_is_enough_are_named_together(tmp_path: Path) -> None:
    # Half of a rounded number needs no further rounding.
    text = "<float k = {1000}, float two = {2}, float l = {2000}> {"
    text += " h = Add (x, k)  g = Mul (h, two)  y = Sub (g, l) }"
    found = cause(text, tmp_path, 0.02)
    assert found is not None
    assert found.values == ("h", "g")


def test_counterparts_in_other_layers_count_as_one(tmp_path: Path) -> None:
    text = """<float k = {1000}> { t = Tanh (x)
        a = Add (t, k)  b = Sub (a, k)  c = Sin (b)  d = Add (c, k)  y = Sub (d, k) }"""
    graph = model(text, tmp_path)
    layers = (None, "layers.0", "layers.0", None, "layers.1", "layers.1")
    for node, layer in zip(graph.graph, layers, strict=True):
        if layer is not None:
            node.metadata_props[MODULE_KEY] = layer
    with SwitchedValues(graph, HALF) as switched:
        exact = switched.run({"x": X}, ())["y"]

        def share(low: Collection[str]) -> float:
            return float(np.abs(switched.run({"x": X}, low)["y"] - exact).max() / 0.02)

        found = rounding_cause(graph, switched.modules, share)
    assert found is not None
    assert (found.values, found.counterparts) == (("a",), (1,))
    assert set(found.kept) == {"layers.0", "layers.1"}


def test_a_target_within_its_limits_has_no_cause(tmp_path: Path) -> None:
    assert cause("{ y = Tanh (x) }", tmp_path, 0.02) is None


READERS = {
    "Floor": "{ y = Floor (x) }",
    "Sin": "{ y = Sin (x) }",
    "Sub": "{ y = Sub (x, x) }",
    "Tanh": "{ y = Tanh (x) }",
}


@pytest.mark.parametrize(
    ("reader", "values", "made", "text"),
    [
        ("Tanh", np.arange(4000.0), None, "whole numbers up to 3999, and float16 holds every"),
        ("Floor", np.array([1.5, 2.5]), None, "computes in steps"),
        ("Sin", np.array([50.1, -300.7]), None, "reaches 301, where float16 rounds by up to 0.15"),
        ("Sub", np.array([999.5, 1000.5]), np.array([0.5, -0.5]), "a difference of about 0.5 of"),
        ("Sin", np.array([0.1, -0.7]), None, ""),
        ("Sub", np.array([1.5, 1.25]), np.array([0.5, -0.5]), ""),
        ("Tanh", np.array([1.5, np.inf]), None, ""),
        ("Tanh", np.array([0.0, -3.4e38]), None, "it holds 3.4e+38, and the largest number"),
        ("Tanh", np.array([0.0, -1e4]), None, ""),
    ],
)
def test_the_reason_is_what_the_values_are_and_what_reads_them(
    reader: str, values: np.ndarray, made: np.ndarray | None, text: str, tmp_path: Path
) -> None:
    (node,) = model(READERS[reader], tmp_path).graph
    known = {"x": values} | ({} if made is None else {"y": made})
    found = reason(["x"], [node], known, "float16")
    assert text in found if text else not found


def test_a_rounded_output_is_its_own_reason() -> None:
    text = reason(["y"], [], {"y": np.array([100.5, -30.2])}, "float16", is_output=True)
    assert text == "it is an output of up to 100, which float16 rounds by up to 0.049"

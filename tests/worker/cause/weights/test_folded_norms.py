"""A norm that was folded in wrongly is traced to the mistake."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import helper, numpy_helper

from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.weights.traced_weights import WeightReport, compare_weights

EPSILONS = {"one.norm": 1e-5, "two.norm": 1e-5}


def state() -> dict[str, np.ndarray]:
    """Two convolutions of one shape, each with its norm, as torch orders them."""
    random = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {}
    for block in ("one", "two"):
        found[f"{block}.conv.weight"] = random.standard_normal((6, 6, 3, 3))
        found[f"{block}.norm.weight"] = random.uniform(0.5, 1.5, 6)
        found[f"{block}.norm.bias"] = random.standard_normal(6)
        found[f"{block}.norm.running_mean"] = random.standard_normal(6)
        found[f"{block}.norm.running_var"] = random.uniform(0.3, 1.5, 6)
    return {name: values.astype(np.float32) for name, values in found.items()}


def folded(values: dict[str, np.ndarray], epsilon: float = 1e-5) -> Graph:
    """The graph of both convolutions, with whatever norms are given folded in."""
    nodes, tensors, before = [], [], "x"
    for block in ("one", "two"):
        norm = {part: values[f"{block}.norm.{part}"].astype(np.float64) for part in PARTS}
        scale = norm["weight"] / np.sqrt(norm["running_var"] + epsilon)
        weight = values[f"{block}.conv.weight"] * scale[:, None, None, None]
        bias = norm["bias"] - norm["running_mean"] * scale
        for name, array in ((f"w_{block}", weight), (f"b_{block}", bias)):
            tensors.append(numpy_helper.from_array(array.astype(np.float32), name))
        inputs = [before, f"w_{block}", f"b_{block}"]
        nodes.append(helper.make_node("Conv", inputs, [block], pads=[1] * 4))
        before = block
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 6, 8, 8))
    output = helper.make_tensor_value_info("two", onnx.TensorProto.FLOAT, (1, 6, 8, 8))
    graph = helper.make_graph(nodes, "g", [image], [output], tensors)
    return make_graph(onnx_ir.from_proto(helper.make_model(graph)))


PARTS = ("weight", "bias", "running_mean", "running_var")


def report(change: Callable[[dict[str, np.ndarray]], None], epsilon: float = 1e-5) -> WeightReport:
    changed = state()
    change(changed)
    return compare_weights(folded(changed, epsilon), state(), EPSILONS)


def swapped(values: dict[str, np.ndarray]) -> None:
    for part in ("running_mean", "running_var"):
        one, two = f"one.norm.{part}", f"two.norm.{part}"
        values[one], values[two] = values[two], values[one]


def without_gain(values: dict[str, np.ndarray]) -> None:
    values["two.norm.weight"] = np.ones_like(values["two.norm.weight"])


def without_mean(values: dict[str, np.ndarray]) -> None:
    values["one.norm.running_mean"] = np.zeros_like(values["one.norm.running_mean"])


def without_shift(values: dict[str, np.ndarray]) -> None:
    values["one.norm.bias"] = np.zeros_like(values["one.norm.bias"])


def test_norms_that_were_folded_in_rightly_differ_in_nothing() -> None:
    found = report(lambda values: None)  # noqa: ARG005
    assert found.differences == ()
    assert found.unknown == ()
    assert found.missing == ()


@pytest.mark.parametrize("wrong", [False, True])
def test_a_division_of_the_image_may_be_folded_in_too(wrong: bool) -> None:
    deviations = np.linspace(0.2, 0.9, 6, dtype=np.float32)
    changed = state()
    divisors = np.roll(deviations, 1) if wrong else deviations
    changed["one.conv.weight"] /= divisors[:, None, None]
    original = state() | {"deviations": deviations[:, None, None]}
    found = compare_weights(folded(changed), original, EPSILONS)
    assert [each.weight for each in found.differences] == (["w_one"] if wrong else [])
    if not wrong:
        match = next(each for each in found.matches if each.weight == "w_one")
        assert match.original == "one.conv.weight with one.norm folded in, divided by deviations"
        assert "deviations" in match.sources


def test_norms_are_found_where_buffers_follow_all_parameters() -> None:
    given = state()
    last = sorted(given, key=lambda name: "running" in name)
    found = compare_weights(folded(given), {name: given[name] for name in last}, EPSILONS)
    assert found.differences == ()


def test_a_layer_that_reads_as_many_channels_as_a_norm_has_is_not_before_it() -> None:
    given = state()
    given["one.gate.weight"] = np.ones((4, 6, 1, 1), np.float32)
    given["one.gate.bias"] = np.ones(4, np.float32)
    assert compare_weights(folded(state()), given, EPSILONS).differences == ()


def test_another_epsilon_is_named_with_the_norm_s_own() -> None:
    found = report(lambda values: None, epsilon=1e-2)  # noqa: ARG005
    texts = {each.weight: each.likeness.text for each in found.differences}
    assert texts["w_one"] == "one.norm was folded in with epsilon 0.01 instead of 1e-05"
    assert texts["b_two"] == "two.norm was folded in with epsilon 0.01 instead of 1e-05"


@pytest.mark.parametrize(
    ("change", "weight", "text"),
    [
        (without_gain, "w_two", "two.norm was folded in without its gain"),
        (without_mean, "b_one", "one.norm was folded in without its mean"),
        (without_shift, "b_one", "one.norm was folded in without its shift"),
        (swapped, "w_one", "one.norm was folded in with two.norm's running_var"),
        (swapped, "b_two", "two.norm was folded in with one.norm's running_mean and running_var"),
    ],
)
def test_the_mistake_is_named(
    change: Callable[[dict[str, np.ndarray]], None], weight: str, text: str
) -> None:
    found = report(change)
    texts = {each.weight: each.likeness.text for each in found.differences}
    assert texts[weight] == text
    expected = folded(state()).constants
    for each in found.differences:
        np.testing.assert_allclose(each.corrected, expected[each.weight], rtol=1e-5, atol=1e-6)


def test_a_norm_of_another_kind_of_change_keeps_its_figures() -> None:
    graph = folded(state())
    noise = np.random.default_rng(1).standard_normal((6, 6, 3, 3)).astype(np.float32)
    changed = graph.with_nodes(graph.nodes, {"w_one": graph.constants["w_one"] + 0.01 * noise})
    (difference,) = compare_weights(changed, state(), EPSILONS).differences
    assert (difference.weight, difference.likeness.kind) == ("w_one", "noise")

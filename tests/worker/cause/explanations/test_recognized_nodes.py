"""What a node does differently is recognized: its attributes, missing steps, and what it reads."""

import dataclasses

import numpy as np
import onnx.parser
import onnx_ir
import torch
from recognized_places import X, node_region, only, operation, region

from convkit.worker.cause.explanations.integer_division import divisions
from convkit.worker.cause.explanations.missing_steps import left_out, misread
from convkit.worker.cause.explanations.normalization import normalizations
from convkit.worker.cause.explanations.operation_arguments import own_arguments
from convkit.worker.cause.explanations.reordered_elements import other_values, reordered
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.matching.axis_layouts import AxisLayout
from convkit.worker.cause.search_types.diverging_region import Region

IMAGE = torch.tensor(X)
RESIZE = """<float[4] by = {1, 1, 2, 2}> {
    y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                nearest_mode = "floor"> (x, , by)
}"""
CONVOLUTION = """<float[3, 3, 3, 3] w = {%s}> {
    y = Conv <pads = [1, 1, 1, 1], dilations = [1, 1]> (x, w)
}""" % ", ".join(str((7 * each) % 5 - 2) for each in range(81))  # noqa: UP031 - braces


def test_two_attributes_that_differ_together_are_named() -> None:
    expected = torch.nn.functional.interpolate(IMAGE, scale_factor=2, mode="bilinear").numpy()
    bilinear = operation(0, "upsample_bilinear2d.vec", 0, 1, align_corners=False)
    text = only(own_arguments, node_region(RESIZE, X, expected, bilinear))
    assert "mode is nearest and should be linear" in text
    assert "coordinate_transformation_mode is asymmetric and should be half_pixel" in text


def test_padding_and_dilation_that_differ_together_are_named() -> None:
    weight = torch.tensor([(7.0 * each) % 5 - 2 for each in range(81)]).reshape(3, 3, 3, 3)
    expected = torch.nn.functional.conv2d(IMAGE, weight, padding=2, dilation=2).numpy()
    pair = {"stride": (1, 1), "padding": (2, 2), "dilation": (2, 2), "groups": 1}
    place = node_region(CONVOLUTION, X, expected, operation(0, "convolution.default", 0, 1, **pair))
    text = only(own_arguments, place)
    assert "dilations is [1, 1] and should be [2, 2]" in text
    assert "pads is [1, 1, 1, 1] and should be [2, 2, 2, 2]" in text


def test_a_node_with_the_original_s_arguments_is_left_alone() -> None:
    same = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    place = node_region(CONVOLUTION, X, X, operation(0, "convolution.default", 0, 1, **same))
    assert not list(own_arguments(place))


def test_steps_that_the_graph_lacks_are_named() -> None:
    capped = 5 * np.tanh(X / 5)
    place = dataclasses.replace(
        region(X, capped, x=X),
        operations=(
            operation(1, "div.Tensor", 0, 1),
            operation(2, "tanh.default", 1, 2),
            operation(3, "mul.Tensor", 2, 3),
        ),
        inner={1: X / 5, 2: np.tanh(X / 5), 3: capped},
        numbers={"x": 0},
    )
    assert "lacks the original's div, tanh, mul (at model.py:3)" in only(left_out, place)
    # Without that value before the steps, nothing says that they are what is missing.
    assert not list(left_out(dataclasses.replace(place, numbers={}, inner={})))


def test_a_step_that_one_reader_lacks_is_named() -> None:
    place = node_region("{ y = Mul (x, x) }", X, X * np.sin(X))
    place = dataclasses.replace(
        place,
        operations=(operation(1, "sin.default", 0, 1), operation(2, "mul.Tensor", 1, 2)),
        inner={1: np.sin(X), 2: X * np.sin(X)},
        numbers={"x": 0},
    )
    right = [each.text for each in left_out(place) if place.error(each.graph) <= 2e-6]
    assert right == ["its input x lacks the original's sin (at model.py:1)"] * 2


def test_values_in_the_wrong_order_of_axes_are_named() -> None:
    flat = torch.tensor(X).permute(0, 2, 3, 1).flatten(1).numpy()
    place = node_region("{ y = Identity (x) }", flat[:, :, None, None], X.reshape(2, -1, 1, 1))
    place = dataclasses.replace(place, own={"x": X})
    right = [each.text for each in reordered(place) if place.error(each.graph) == 0]
    assert len(right) == 1
    assert "should be the original's [2, 3, 5, 8] with its axes in the original's order" in right[0]


def test_another_value_that_a_node_should_read_is_named_in_its_layout() -> None:
    other = np.tanh(X)
    axes = (0, 1, 3, 2)
    given = np.ascontiguousarray(X.transpose(axes))
    place = node_region("{ y = Neg (x) }", given, -other.transpose(axes))
    place = dataclasses.replace(
        place, own={"x": X, "gate": other}, layouts={"x": AxisLayout(axes, given.shape)}
    )
    assert "it reads x and should read gate, in the same layout" in only(other_values, place)


def test_an_epsilon_outside_the_square_root_is_no_layer_norm() -> None:
    values, epsilon = X * np.float32(0.05), 1e-3
    power = (values**2).mean(-1, keepdims=True)
    outside = values / (np.sqrt(power) + np.float32(epsilon))
    place = region(outside, values / np.sqrt(power + np.float32(epsilon)), x=values)
    assert (
        "an RMS norm with its epsilon outside the square root over axis 3 of x and should compute"
        " an RMS norm over axis 3"
    ) in only(normalizations, place)


def test_a_value_read_for_another_that_the_graph_lacks_is_named() -> None:
    other = X[::-1].copy()
    place = node_region("{ y = Exp (x) }", X, np.exp(np.sin(other)))
    place = dataclasses.replace(
        place,
        operations=(operation(1, "sin.default", 5, 1), operation(2, "exp.default", 1, 2)),
        inner={1: np.sin(other), 2: np.exp(np.sin(other))},
        numbers={"x": 0},
    )
    (right,) = [each for each in misread(place) if place.error(each.graph) <= 2e-6]
    assert right.kind == "wiring"
    assert "it reads x and should read the result of the original's sin" in right.text
    # What the original computes from the value that is read is a step left out.
    steps = (operation(1, "sin.default", 0, 1), *place.operations[1:])
    assert not list(misread(dataclasses.replace(place, operations=steps)))


def test_a_division_that_rounds_towards_zero_is_named() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (int32[6] x) => (int32[6] y) <int32 three = {3}> { y = Div (x, three) }
    """
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    whole = np.array([-7, -6, -1, 0, 5, 7], np.int32)
    dtypes = {"x": whole.dtype}
    place = Region(graph, "y", {"x": whole}, whole // 3, (), {}, ("x",), {"y": whole.shape}, dtypes)
    assert "should round down" in only(divisions, place)
    floats = dataclasses.replace(place, dtypes={"x": np.dtype("f4")})
    assert not list(divisions(floats))

"""What a place computes is recognized from values: rotary embeddings, masks, reductions, norms."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import onnx.parser
import onnx_ir
import pytest
import torch

from convkit.localize.differences import relative_error
from convkit.localize.divisions import divisions
from convkit.localize.edits import Rewrite
from convkit.localize.graph import make_graph
from convkit.localize.insertions import at_end
from convkit.localize.layouts import Layout
from convkit.localize.left_out import left_out, misread
from convkit.localize.masking import masks
from convkit.localize.normalizing import normalizations
from convkit.localize.original import Operation
from convkit.localize.own_arguments import own_arguments
from convkit.localize.reductions import reductions
from convkit.localize.region import Region
from convkit.localize.reordered import other_values, reordered
from convkit.localize.rotary import rotary
from convkit.localize.sketches import sketch

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(2, 3, 5, 8)).astype(np.float32)
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, H, S, D] x) => (float[B, H, S, D] y) <float fixed = {0}> { y = Identity (fixed) }
"""


def region(found: np.ndarray, expected: np.ndarray, **feeds: np.ndarray) -> Region:
    """Return a place at which the graph computes `found` from `feeds`."""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)))
    graph = graph.with_nodes(graph.nodes, {"fixed": np.ascontiguousarray(found)})
    return Region(graph, "y", feeds, expected, (), {}, tuple(feeds), {"y": found.shape})


def only(candidates: Callable[[Region], Iterator[Rewrite]], place: Region) -> str:
    """Return what the only candidate says; it must remove the difference."""
    (rewrite,) = candidates(place)
    assert place.error(place.graph) > 1e-3
    assert place.error(rewrite.graph) <= 2e-5
    return rewrite.text


def turned(
    values: np.ndarray,
    *,
    layout: str = "halves",
    base: float = 100.0,
    start: int = 0,
    factor: float = 1.0,
    width: int = 8,
) -> np.ndarray:
    """Apply a rotary embedding as models write it: x * cos + rotated(x) * sin."""
    rates = base ** (-np.arange(0, width, 2) / width)
    angles = factor * (np.arange(values.shape[-2]) + start)[:, None] * rates
    part = values[..., :width]
    if layout == "halves":
        a, b = np.split(part, 2, -1)
        other, angles = np.concatenate([-b, a], -1), np.concatenate([angles, angles], -1)
    else:
        other = np.stack([-part[..., 1::2], part[..., ::2]], -1).reshape(part.shape)
        angles = np.repeat(angles, 2, -1)
    made = part * np.cos(angles) + other * np.sin(angles)
    return np.concatenate([made, values[..., width:]], -1).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"layout": "neighbors"}, "turns pairs of neighboring elements"),
        ({"base": 1000.0}, "has the base 1000 (theta) and should have 100"),
        ({"start": 1}, "counts positions from 1 and should count from 0"),
        ({"factor": -1.0}, "turns in the opposite direction"),
        ({"factor": 0.5}, "turns 0.5 times as far"),
        ({"width": 4}, "turns 4 elements and should turn 8"),
        ({"factor": 0.0}, "lacks the rotary embedding of x"),
    ],
)
def test_a_wrong_rotary_embedding_is_named(wrong: dict, text: str) -> None:
    place = region(turned(X, **wrong), turned(X), x=X)
    assert text in only(rotary, place)


def test_a_rotary_embedding_too_much_is_named() -> None:
    assert "should not be there" in only(rotary, region(turned(X), X, x=X))


def test_other_values_are_no_rotary_embedding() -> None:
    for found, expected in (
        (turned(X), np.tanh(X)),
        (np.tanh(X), turned(X)),
        (turned(X), 2 * turned(X, start=1)),
    ):
        assert not list(rotary(region(found, expected.astype(np.float32), x=X)))


SCORES = RANDOM.normal(size=(2, 2, 5, 5)).astype(np.float32)
AHEAD = np.arange(5) - np.arange(5)[:, None]
KEEP = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
PADDING = np.broadcast_to(KEEP[:, None, None] == 0, SCORES.shape)


def masked(*hidden: np.ndarray, fill: float = -1e9) -> np.ndarray:
    """Return the scores with some positions filled in."""
    where = np.logical_or.reduce([np.broadcast_to(each, SCORES.shape) for each in hidden])
    return np.where(where, np.float32(fill), SCORES).astype(np.float32)


@pytest.mark.parametrize("fill", [-1e4, -1e9, -3.4e38, -np.inf])
@pytest.mark.parametrize(
    ("own", "should", "text"),
    [
        ([AHEAD > 9], [AHEAD > 0], "does not hide the future (a causal mask)"),
        ([AHEAD > 0], [AHEAD > 9], "hides the future (a causal mask), which the original does not"),
        ([AHEAD > 0], [AHEAD > 0, AHEAD < -2], "positions 3 or more back (a sliding window)"),
        ([AHEAD > 0], [AHEAD > 0, PADDING], "does not hide positions where keep is 0"),
    ],
)
def test_a_wrong_mask_is_named(
    fill: float, own: list[np.ndarray], should: list[np.ndarray], text: str
) -> None:
    place = region(masked(*own, fill=fill), masked(*should, fill=fill), keep=KEEP)
    (rewrite,) = masks(place)
    assert text in rewrite.text
    assert place.error(rewrite.graph) == 0 < place.error(place.graph)


def test_scores_that_are_wrong_as_well_are_no_matter_of_the_mask() -> None:
    wrong = np.where(AHEAD > 0, -1e9, 2 * SCORES).astype(np.float32)
    assert not list(masks(region(wrong, masked(AHEAD > 9))))
    assert not list(masks(region(masked(AHEAD > 0), masked(AHEAD > 0))))


HIDDEN = RANDOM.normal(size=(2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (HIDDEN.mean(1), HIDDEN[:, 0], "is the mean over axis 1 of h and should be the first"),
        (HIDDEN[:, 0], HIDDEN[:, -1], "the first element over axis 1 of h and should be the last"),
        (HIDDEN.mean(1), HIDDEN.max(1), "should be the largest element over axis 1"),
        (
            HIDDEN.mean(1),
            (HIDDEN * KEEP[..., None]).sum(1) / KEEP.sum(1)[:, None],
            "should be the mean over the positions where keep is not 0",
        ),
        (
            HIDDEN.std(1),
            HIDDEN.std(1, ddof=1),
            "by n) of h and should be the standard deviation over axis 1 (divided by n - 1)",
        ),
    ],
)
def test_another_reduction_is_named(found: np.ndarray, expected: np.ndarray, text: str) -> None:
    place = region(found.astype(np.float32), expected.astype(np.float32), h=HIDDEN, keep=KEEP)
    assert text in only(reductions, place)


def test_values_that_no_reduction_gives_are_left_alone() -> None:
    assert not list(reductions(region(HIDDEN.mean(1), np.tanh(HIDDEN[:, 0]), h=HIDDEN)))
    assert not list(reductions(region(HIDDEN.mean(1), HIDDEN.mean(1), h=HIDDEN)))


def normed(values: np.ndarray, *, center: bool = True, power: float = 0.5) -> np.ndarray:
    """Return a layer norm, or an RMS norm, with a gain."""
    inner = values - values.mean(-1, keepdims=True) if center else values
    scale = (inner * inner).mean(-1, keepdims=True) + 1e-5
    return (inner / scale**power * np.linspace(0.5, 1.5, values.shape[-1])).astype(np.float32)


WIDE = RANDOM.normal(0.5, 1, size=(4, 6, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (normed(WIDE, center=False), normed(WIDE), "an RMS norm over axis 2 of h and should comp"),
        (normed(WIDE), normed(WIDE, center=False), "should compute an RMS norm over axis 2"),
        (
            WIDE / np.abs(WIDE).sum(-1, keepdims=True),
            WIDE / np.sqrt((WIDE * WIDE).sum(-1, keepdims=True)),
            "an L1 normalization over axis 2 of h and should compute an L2 normalization",
        ),
    ],
)
def test_another_normalization_is_named(found: np.ndarray, expected: np.ndarray, text: str) -> None:
    assert text in only(normalizations, region(found, expected, h=WIDE))


def test_another_number_of_groups_is_named() -> None:
    picture = RANDOM.normal(size=(1, 6, 2, 2)).astype(np.float32)
    gain, shift = RANDOM.uniform(0.5, 1.5, (2, 6)).astype(np.float32)

    def grouped(count: int) -> np.ndarray:
        values = torch.nn.functional.group_norm(torch.tensor(picture), count, eps=1e-5)
        return values.numpy() * gain[:, None, None] + shift[:, None, None]

    place = region(grouped(2), grouped(3), h=picture)
    place = dataclasses.replace(place, weights={"gain": gain, "shift": shift})
    text = "it computes a group norm of 2 groups of h and should compute a group norm of 3 groups"
    assert text in only(normalizations, place)


def test_values_that_are_not_normalized_are_left_alone() -> None:
    assert not list(normalizations(region(normed(WIDE), np.tanh(WIDE), h=WIDE)))
    assert not list(normalizations(region(normed(WIDE), normed(WIDE, power=0.4), h=WIDE)))


def test_what_a_node_makes_of_a_value_is_told_only_if_it_reads_the_value() -> None:
    expected = np.stack([normed(WIDE[:2]), normed(WIDE[2:])])
    given = np.stack([WIDE[:2], WIDE[2:]])
    read = node_region("{ y = Tanh (x) }", given, expected)
    assert "it should compute a layer norm over axis 3 of x" in only(normalizations, read)
    unread = region(np.tanh(given), expected, x=given)
    assert not list(normalizations(unread))


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (WIDE, np.minimum(WIDE, 1), "its output lacks a clip with the upper bound 1"),
        (WIDE, np.maximum(WIDE, -0.5), "its output lacks a clip with the lower bound -0.5"),
        (WIDE, WIDE * np.float32(1.25), "its output lacks the multiplication by 1.25"),
        (WIDE, WIDE + np.float32(0.75), "its output lacks the addition of 0.75"),
        (
            np.arange(40).reshape(2, 20),
            np.arange(40).reshape(2, 20) + 6,
            "its output lacks an offset of +6",
        ),
        (
            WIDE,
            WIDE / np.sqrt((WIDE * WIDE).sum(-1, keepdims=True)),
            "its output lacks an L2 normalization over axis -1",
        ),
    ],
)
def test_what_the_end_of_a_place_lacks_is_fitted(
    found: np.ndarray, expected: np.ndarray, text: str
) -> None:
    place = region(found, expected)
    assert text in [each.text for each in at_end(place) if place.error(each.graph) <= 2e-6]


def test_an_offset_by_the_length_of_a_cache_says_so() -> None:
    positions = np.arange(40).reshape(2, 20)
    place = region(positions, positions + 5, x=X)
    assert "an offset of +5, the size of axis 2 of x" in " ".join(e.text for e in at_end(place))


@pytest.mark.parametrize("fill", [-1e4, -1e9])
def test_a_difference_beside_what_a_mask_filled_in_does_not_vanish(fill: float) -> None:
    # Of the root mean square of all elements, the difference would be a millionth.
    right, wrong = masked(AHEAD > 0, fill=fill), masked(AHEAD > 0, fill=fill).copy()
    wrong[0, 0, 0, 0] += 0.5
    assert relative_error(wrong, right) > 0.1
    assert np.abs(sketch(wrong) - sketch(right)).max() > 1e-3
    assert relative_error(right, masked(AHEAD > 9)) > 0.9
    # What float32 leaves of a score beside -1e4 is within the last bits.
    assert relative_error(np.where(right == fill, fill * (1 + 6e-8), right), right) < 2e-7


def test_large_values_that_nothing_sets_apart_are_compared_as_they_are() -> None:
    pixels = np.linspace(0, 4000, 50, dtype=np.float32)
    moved = pixels.copy()
    moved[1] += 1
    assert relative_error(moved, pixels) == pytest.approx(1 / np.sqrt((pixels**2).mean()), rel=1e-4)


def operation(index: int, name: str, read: int, made: int, **scalars: object) -> Operation:
    """Return an operation of the original that computes one value from another."""
    return Operation(index, name, "", f"model.py:{index}", (read,), (made,), tuple(scalars.items()))


def node_region(
    text: str, given: np.ndarray, expected: np.ndarray, *operations: Operation
) -> Region:
    """Return a place at which one node computes `y` from `x`."""
    head = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[B, C, H, W] x) => (float[B, C, U, V] y)'
    )
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(f"{head} {text}")))
    found = graph.run(["y"], {"x": given})["y"]
    shapes = {"y": found.shape, "x": given.shape}
    return Region(graph, "y", {"x": given}, expected, operations, {}, ("x",), shapes)


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
        place, own={"x": X, "gate": other}, layouts={"x": Layout(axes, given.shape)}
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

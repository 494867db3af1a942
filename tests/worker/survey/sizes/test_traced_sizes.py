"""A file that says that it takes any size, and holds numbers of the example it was traced with, is
drafted with the sizes of that example.
"""

from pathlib import Path

import numpy as np
import pytest
from test_file_survey import saved, surveyed

# Attention as TorchScript exports it: positions and heads in a reshape of numbers.
ATTENTION = """g (float[n,steps,32] x) => (float[steps,heads,8] y) {
    first = Transpose<perm=[1,0,2]>(x)
    shape = Constant<value_ints=[9,4,8]>()
    y = Reshape(first, shape)
}"""
# Two sets of features, each with its own size.
MATCHER = """g (float[1,a,16] one, float[1,b,16] two) => (float[1,a,b] y) {
    left = Constant<value_ints=[1,30,2,8]>()
    right = Constant<value_ints=[1,41,2,8]>()
    split_one = Reshape(one, left)
    split_two = Reshape(two, right)
    flat = Constant<value_ints=[1,30,16]>()
    back = Constant<value_ints=[1,41,16]>()
    joined_one = Reshape(split_one, flat)
    joined_two = Reshape(split_two, back)
    turned = Transpose<perm=[0,2,1]>(joined_two)
    y = MatMul(joined_one, turned)
}"""
# Sound with a stride: 201 samples make 100 frames.
STRIDED = """g (float[n,1,t] x) => (float[100,m] y) {
    frames = Conv<strides=[2], kernel_shape=[3]>(x, kernel)
    shape = Constant<value_ints=[100,4]>()
    y = Reshape(frames, shape)
}"""
POSITIONS = """g (float[n,t,4] x) => (float[n,t,4] y) {
    y = Add(x, positions)
}"""


def sizes(found: object) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in found.contract.inputs}  # type: ignore[attr-defined]


def test_positions_in_a_reshape_are_solved_for(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, ATTENTION))
    assert found.ran
    assert sizes(found)["x"] == (1, 9, 32)
    assert any("steps is fixed at 9" in note for note in found.notes)
    (note,) = [note for note in found.notes if "traced with" in note]
    assert "but a node without a name holds those of the example" in note


def test_two_axes_are_solved_one_after_the_other(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, MATCHER))
    assert found.ran
    assert sizes(found) == {"one": (1, 30, 16), "two": (1, 41, 16)}


def test_a_stride_is_allowed_for(tmp_path: Path) -> None:
    kernel = np.ones((4, 1, 3), np.float32)
    found = surveyed(saved(tmp_path, STRIDED, kernel=kernel))
    assert found.ran
    assert sizes(found)["x"] == (1, 1, 201)


@pytest.mark.parametrize("count", [7, 33, 100])
def test_a_table_of_positions_is_solved_for(tmp_path: Path, count: int) -> None:
    positions = np.ones((1, count, 4), np.float32)
    found = surveyed(saved(tmp_path, POSITIONS, positions=positions))
    assert found.ran
    assert sizes(found)["x"][1] == count


def test_what_no_size_mends_is_said(tmp_path: Path) -> None:
    """Five times eight elements are no multiple of three."""
    text = """g (float[n,t,8] x) => (float[n,t,8] y) {
        shape = Constant<value_ints=[3,3,3]>()
        y = Reshape(x, shape)
    }"""
    found = surveyed(saved(tmp_path, text))
    assert not found.ran
    assert any("did not run with any of the sizes" in note for note in found.notes)


def test_a_state_of_unknown_size_may_begin_with_one_element(tmp_path: Path) -> None:
    text = """g (float[n,3,h,w] x, float[n,c,sh,sw] state) => (float[n,3,h2,w2] y) {
        half = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
        shape = Shape(half)
        spread = Expand(state, shape)
        y = Add(half, spread)
    }"""
    found = surveyed(saved(tmp_path, text))
    assert found.ran
    assert sizes(found)["state"][1:] == (1, 1, 1)
    assert found.contract.inputs[0].shape[2:] == ("h", "w")


def test_a_size_among_the_inputs_is_one_that_shows_something(tmp_path: Path) -> None:
    text = """g (float[1,1,8,8] x, float[2] image_size) => (float[1,1,h,w] y) {
        size = Cast<to=7>(image_size)
        rows = Constant<value_ints=[1,1]>()
        whole = Concat<axis=0>(rows, size)
        y = Resize(x, , , whole)
    }"""
    found = surveyed(saved(tmp_path, text))
    assert (found.samples["image_size"].kind, found.samples["image_size"].numbers) == (
        "constant",
        (64,),
    )
    assert found.contract.outputs[0].shape == (1, 1, 64, 64)


def test_what_a_generator_works_on_is_no_picture(tmp_path: Path) -> None:
    """Its side is an eighth of a picture's, and each row has its time."""
    text = """g (float[batch,4,height,width] sample, int64[steps] timestep)
            => (float[batch,4,height,width] y) {
        times = Cast<to=1>(timestep)
        axes = Constant<value_ints=[1,2,3]>()
        spread = Unsqueeze(times, axes)
        y = Add(sample, spread)
    }"""
    found = surveyed(saved(tmp_path, text))
    assert found.samples["sample"].kind == "normal"
    typical = found.contract.typical_sizes()
    assert (typical["height"], typical["width"]) == (32, 32)
    assert sizes(found)["timestep"] == sizes(found)["sample"][:1]

from hypothesis import given
from hypothesis import strategies as st
from tiny_models import BATCH, SEQUENCE, tensor

from convkit.protocol.contract import Axis, Contract
from convkit.worker.original.example_sizes import example_sizes, other_sizes


def contract(*axes, shape):
    return Contract((tensor("x", *shape),), (), axes)


def test_no_two_dimensions_are_alike():
    sizes = next(example_sizes(contract(BATCH, SEQUENCE, shape=("batch", "sequence", 3, 5))))
    assert sizes["batch"] not in (0, 1, 3, 5)
    assert sizes["sequence"] not in (0, 1, 3, 5, sizes["batch"])


def test_arithmetic_has_a_size_of_its_own():
    past = Axis("past", 1, 4, 8)
    found = contract(SEQUENCE, past, shape=("sequence", "past", "past + sequence"))
    sizes = next(example_sizes(found))
    assert len({sizes["sequence"], sizes["past"], sizes["past"] + sizes["sequence"]}) == 3


def test_the_typical_sizes_come_last():
    assert list(example_sizes(contract(BATCH, SEQUENCE, shape=("batch", "sequence"))))[-1] == {
        "batch": 4,
        "sequence": 16,
    }


def test_an_axis_of_one_size_keeps_it():
    fixed = Axis("batch", 1, 1, 1)
    found = contract(fixed, SEQUENCE, shape=("batch", "sequence"))
    assert {sizes["batch"] for sizes in example_sizes(found)} == {1}
    assert other_sizes(found, next(example_sizes(found)))["batch"] == 1
    assert other_sizes(contract(fixed, shape=("batch",)), {"batch": 1}) is None


def test_without_axes_there_is_one_choice():
    assert list(example_sizes(contract(shape=(2, 3)))) == [{}]


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60)), min_size=1, max_size=4))
def test_sizes_are_inside_the_ranges(ranges):
    axes = [Axis(f"a{i}", low, low, low + extent) for i, (low, extent) in enumerate(ranges)]
    found = contract(*axes, shape=tuple(axis.name for axis in axes))
    examples = list(example_sizes(found))
    assert examples
    for sizes in examples:
        assert all(axis.min <= sizes[axis.name] <= axis.max for axis in axes)
        assert all(sizes[axis.name] > 1 for axis in axes if axis.min < axis.max)

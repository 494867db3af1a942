"""Sizes between those of other cases fill the widest gaps first."""

import itertools

import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.case import CaseInputs, case_cost
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.sizes_between import corner_sizes, sizes_between
from convkit.worker.cases.values.sampling_facts import ModelFacts


def contract(*axes, shape=("batch", "sequence")):
    return Contract(
        (TensorSpec("x", "float32", shape),), (TensorSpec("y", "float32", shape),), axes
    )


TEXTS = contract(Axis("batch", 1, 4, 16), Axis("sequence", 1, 16, 64))


def widest_gap(sizes, low, high):
    ends = sorted({low, high, *sizes})
    return max(after - before for before, after in itertools.pairwise(ends))


def test_no_wide_gap_is_left():
    cases, _ = build_ladder(CaseInputs(TEXTS, {}, 0, ModelFacts()), (), None)
    without = {case.sizes["sequence"] for case in cases if not case.name.startswith("sizes:")}
    assert widest_gap(without, 1, 64) == 48
    assert widest_gap({case.sizes["sequence"] for case in cases}, 1, 64) <= 13


@pytest.mark.parametrize(("part", "expected"), [(16, {0, 1, 15}), (32, {0, 1, 31}), (64, {0, 1})])
def test_a_part_of_a_single_element_is_left_somewhere(part, expected):
    """Windows or chunks of so many leave one, are full, and where they are short lack one."""
    long = contract(Axis("batch", 1, 2, 4), Axis("sequence", 2, 100, 512))
    cases, _ = build_ladder(CaseInputs(long, {}, 0, ModelFacts(weights=100)), (), None)
    left = {case.sizes["sequence"] % part for case in cases if case.sizes["sequence"] > part}
    assert expected <= left


def test_rows_are_few_but_in_one_case():
    found = list(sizes_between(TEXTS, [{"batch": 4, "sequence": 16}], 6))
    assert sorted(each["batch"] for each in found)[:5] == [1] * 5
    assert max(each["batch"] for each in found) > 4
    assert len({tuple(each.items()) for each in found}) == 6


def test_two_axes_do_not_grow_together():
    square = contract(Axis("height", 1, 8, 99), Axis("width", 1, 8, 99), shape=("height", "width"))
    found = list(sizes_between(square, [], 6))
    assert all(each["height"] != each["width"] for each in found)


def test_all_sizes_of_a_small_axis_and_none_of_a_fixed_one():
    small = contract(Axis("sequence", 2, 3, 5), shape=("sequence", 4))
    found = list(sizes_between(small, [], 6))
    assert sorted(each["sequence"] for each in found) == [3, 4]
    assert list(sizes_between(contract(Axis("sequence", 3, 3, 3)), [], 6)) == []


def test_they_cost_at_most_half_of_the_largest_case():
    only = contract(Axis("sequence", 1, 512, 512), shape=(1, "sequence"))
    cases, _ = build_ladder(
        CaseInputs(only, {"x": Sample("normal", (0.0, 1.0))}, 0, ModelFacts()), (), None
    )
    spent = sum(case_cost(only, each.sizes) for each in cases if each.name.startswith("sizes:"))
    assert 0 < spent <= case_cost(only, {"sequence": 512}) / 2


def test_one_axis_is_at_its_largest_alone():
    cases, _ = build_ladder(CaseInputs(TEXTS, {}, 0, ModelFacts()), (), None)
    sizes = [case.sizes for case in cases]
    assert {"batch": 16, "sequence": 1} in sizes
    assert {"batch": 1, "sequence": 64} in sizes
    assert corner_sizes(TEXTS, sizes) == []
    assert corner_sizes(contract(Axis("sequence", 1, 8, 99), shape=(3, "sequence")), []) == []

"""Where comparisons of sizes change within the axes' ranges."""

import pytest

from convkit.protocol.contract import Axis, Contract
from convkit.worker.cases.decision_sizes import Decisions, SizeDecision, outcomes, turns

CONTRACT = Contract((), (), (Axis("batch", 1, 4, 8), Axis("sequence", 2, 64, 5000)))
BASE = {"batch": 3, "sequence": 7}


def sides(holds):
    found = turns(SizeDecision("here", holds), CONTRACT, BASE)
    return [(turn.axis, turn.below[turn.axis], turn.above[turn.axis]) for turn in found]


@pytest.mark.parametrize("limit", [2, 77, 515, 4321, 4999])
def test_a_limit_is_found_exactly(limit):
    assert sides(lambda sizes: sizes["sequence"] > limit) == [("sequence", limit, limit + 1)]


def test_one_size_of_its_own_has_two_turns():
    assert sides(lambda sizes: sizes["sequence"] == 64) == [
        ("sequence", 63, 64),
        ("sequence", 64, 65),
    ]


def test_a_remainder_is_tried_at_its_first_turns_only():
    assert len(sides(lambda sizes: sizes["sequence"] % 2 == 0)) == 2


def test_other_axes_are_moved_where_that_shows_the_turn():
    found = turns(
        SizeDecision("here", lambda sizes: sizes["batch"] > 3 and sizes["sequence"] > 4500),
        CONTRACT,
        BASE,
    )
    assert {turn.axis for turn in found} == {"batch", "sequence"}
    assert found[0].above["sequence"] == 5000


def test_what_never_changes_has_no_turn():
    assert sides(lambda sizes: sizes["sequence"] > 9000) == []


def test_sizes_that_determine_nothing_are_passed_over():
    def holds(sizes):
        return sizes["sequence"] // (sizes["batch"] - 3) > 5

    decision = SizeDecision("here", holds)
    assert outcomes(
        decision,
        [
            ("a", {"batch": 3, "sequence": 9}),
            ("b", {"batch": 1}),
            ("c", {"batch": 4, "sequence": 9}),
        ],
    ) == {"c": True}


def test_the_same_comparison_is_kept_once():
    decision = SizeDecision("here", lambda _: True)
    assert (Decisions((decision,)) + Decisions((decision,))).sizes == (decision,)

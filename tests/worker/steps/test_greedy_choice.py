import numpy as np
import pytest

from convkit.worker.steps.greedy_choice import chosen_tokens, compare_tokens

SCORES = np.zeros((3, 1, 4))
SCORES[0, 0, 1], SCORES[1, 0, 2], SCORES[2, 0, 3] = 1.0, 2.0, 3.0


@pytest.mark.parametrize(
    ("found", "ends", "agreed", "margin"),
    [
        ([1, 2, 3], (), 3, None),
        ([1, 0, 3], (), 1, 2.0),
        ([1, 2, 0], (2,), 2, None),  # the sequence has ended
        ([1, 2], (), 2, np.inf),
        ([1, 2, 9], (), 2, np.inf),  # no token of this vocabulary
    ],
)
def test_tokens_are_compared_up_to_the_end_of_the_sequence(found, ends, agreed, margin):
    (row,) = compare_tokens(SCORES, np.array([found]), ends)
    assert (row.agreed, row.margin) == (agreed, margin)


def test_scores_that_are_not_numbers_choose_nothing():
    (row,) = compare_tokens(SCORES * np.nan, np.array([[0, 0, 0]]), ())
    assert row.margin is not None
    assert not row.margin <= 1e9


def test_a_built_model_s_scores_that_are_not_numbers_choose_nothing():
    built = SCORES.copy()
    built[1, 0, 2] = np.nan  # argmax alone would choose it, and agree
    (row,) = compare_tokens(SCORES, chosen_tokens(built))
    assert (row.agreed, row.found, row.margin) == (1, None, np.inf)
    (row,) = compare_tokens(SCORES, chosen_tokens(SCORES))
    assert (row.agreed, row.margin) == (3, None)

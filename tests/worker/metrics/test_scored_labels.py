"""Labels that follow from scores which the model returns as well."""

import numpy as np
import pytest

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.metrics.limits import is_within
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.metrics.score_steps import find_steps

SCORES = np.random.default_rng(0).normal(size=(16, 12, 9)).astype(np.float32)
# Close enough for most places to stay, and far enough for some to move.
OFF = SCORES + 0.2 * np.random.default_rng(1).normal(size=SCORES.shape).astype(np.float32)


def measured(labels, chosen, *, scores=SCORES, found=OFF):
    contract = Contract(
        (),
        (
            TensorSpec("labels", str(labels.dtype), tuple(map(str, range(labels.ndim)))),
            TensorSpec("scores", "float32", tuple(map(str, range(scores.ndim)))),
        ),
        (),
    )
    metrics, _ = compare_outputs(
        contract, {"labels": labels, "scores": scores}, {"labels": chosen, "scores": found}
    )
    return metrics


def largest(scores):
    return scores.argmax(-1)


def smallest_of_columns(scores):
    return scores.argmin(1).astype(np.int32)


def best_three(scores):
    return np.argsort(-scores, -1, kind="stable")[..., :3]


def without_the_last(scores):
    return scores[..., :-1].argmax(-1)


def after_the_first(scores):
    return scores[..., 1:].argmax(-1) + 1


def above(scores):
    return scores > 0.7


def below(scores):
    return scores[:, :, :1] < -0.3


@pytest.mark.parametrize(
    "choice", [largest, smallest_of_columns, best_three, without_the_last, after_the_first, above]
)
def test_labels_that_the_models_own_scores_choose_are_counted(choice):
    metrics = measured(choice(SCORES), choice(OFF))
    assert 0 < metrics.scored == pytest.approx(1 - metrics.agreement)
    assert not is_within(metrics, {"agreement": 1.0})
    assert is_within(metrics, {"agreement": 1.0, "by_scores": 0.5})
    assert not is_within(metrics, {"agreement": 1.0, "by_scores": metrics.scored / 2})


def test_a_threshold_from_above_is_one_too():
    scores, found = SCORES[:, :, :1], OFF[:, :, :1]
    metrics = measured(below(SCORES), below(OFF), scores=scores, found=found)
    assert 0 < metrics.scored == pytest.approx(1 - metrics.agreement)


@pytest.mark.parametrize("choice", [largest, best_three, above])
def test_others_are_not(choice):
    """A wrong label is wrong, however far the scores are off."""
    wrong = choice(OFF).copy()
    wrong[0] = ~wrong[0] if wrong.dtype == bool else (wrong[0] + 1) % 9
    metrics = measured(choice(SCORES), wrong)
    assert metrics.scored < 1 - metrics.agreement
    assert not is_within(metrics, {"agreement": 1.0, "by_scores": 0.5})


def test_labels_of_no_scores_count_as_they_are():
    labels = np.random.default_rng(2).integers(0, 9, (16, 12))
    metrics = measured(labels, largest(OFF))
    assert (metrics.scored, metrics.agreement < 0.5) == (0.0, True)


def test_most_labels_may_not_follow_scores_that_say_nothing():
    found = np.random.default_rng(3).normal(size=SCORES.shape).astype(np.float32)
    metrics = measured(largest(SCORES), largest(found), found=found)
    assert metrics.scored > 0.5
    assert not is_within(metrics, {"agreement": 1.0, "by_scores": 0.5})


def test_the_only_label_may_follow_the_scores():
    scores = np.array([[0.1, 0.2, 0.3]], np.float32)
    found = scores[:, ::-1].copy()
    metrics = measured(largest(scores), largest(found), scores=scores, found=found)
    assert (metrics.agreement, metrics.scored) == (0.0, 1.0)
    assert is_within(metrics, {"agreement": 1.0, "by_scores": 0.5})
    assert not is_within(metrics, {"agreement": 1.0})


EDGES = np.array([-0.5, 0.0, 0.5, 1.0])


def between_edges(scores):
    return np.digitize(scores, EDGES).astype(np.int64)


@pytest.mark.parametrize("choice", [between_edges, lambda scores: -between_edges(scores)])
def test_labels_may_be_steps_of_a_score(choice):
    metrics = measured(choice(SCORES), choice(OFF))
    assert 0 < metrics.scored == pytest.approx(1 - metrics.agreement)
    skipped = choice(OFF) + 2 * (choice(OFF) != choice(SCORES))
    assert measured(choice(SCORES), skipped).scored < metrics.scored


def test_a_single_label_shows_no_edge_but_other_cases_do():
    """One row with one label: that it may be another is only known from rows on both sides."""
    contract = Contract(
        (), (TensorSpec("labels", "bool", (1,)), TensorSpec("scores", "float32", (1,))), ()
    )

    def outputs(score):
        return {"labels": np.array([score > 0]), "scores": np.array([score], np.float32)}

    cases = [outputs(score) for score in (0.02, -0.03, 0.5, -2.0)]
    alone, _ = compare_outputs(contract, outputs(0.02), outputs(-0.01))
    known, _ = compare_outputs(contract, outputs(0.02), outputs(-0.01), steps=find_steps(cases))
    assert (alone.scored, known.scored) == (0.0, 1.0)
    far, _ = compare_outputs(
        contract,
        outputs(0.5),
        {"labels": np.array([False]), "scores": np.array([0.4], np.float32)},
        steps=find_steps(cases),
    )
    assert far.scored == 0.0, "the label is not what its own score has"


def test_labels_that_do_not_rise_with_a_score_are_no_steps_of_it():
    cases = [{"labels": np.array([0, 1, 0]), "scores": np.array([0.1, 0.2, 0.3])}]
    assert find_steps(cases) == {}
    rising = [{"labels": np.array([0, 1, 2]), "scores": np.array([0.1, 0.2, 0.3])}]
    assert find_steps(rising)["labels"].scores == "scores"
    assert find_steps([*rising, *cases]) == {}

"""Perplexity: of models whose probabilities are known, and through the rows of an evaluation."""

import dataclasses
import math

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Evaluation, Sample
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.evaluate.task_runs import run_rows, score_built
from convkit.worker.evaluate.token_likelihood import perplexity, row_likelihoods

WORDS = 5
ASKED = Evaluation("", "perplexity", "logits", {"ids": "ids"}, (), None, "mask", tokens="ids")


def scores(ids, certainty):
    """Return the scores of a model that gives the next number in the circle a probability."""
    rest = (1 - certainty) / (WORDS - 1)
    table = np.full((WORDS, WORDS), np.log(rest), dtype=np.float32)
    table[np.arange(WORDS), (np.arange(WORDS) + 1) % WORDS] = np.log(certainty)
    return table[ids] + 7.0  # a common part does not change a probability


def likelihoods(given, feeds):
    return row_likelihoods({"logits": given}, feeds, ASKED)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary():
    ids = np.arange(12).reshape(2, 6) % WORDS
    losses = likelihoods(np.zeros((2, 6, WORDS), np.float32), {"ids": ids})
    assert losses[:, 1].tolist() == [5, 5]
    assert perplexity(losses) == pytest.approx(WORDS)


def test_a_known_certainty_is_its_inverse_in_float16_and_far_from_zero():
    ids = np.arange(6)[None] % WORDS
    for certainty in (0.5, 0.9):
        found = likelihoods(scores(ids, certainty).astype(np.float16), {"ids": ids})
        assert perplexity(found) == pytest.approx(1 / certainty, rel=2e-3)
    far = likelihoods(scores(ids, 0.5) - 3e4, {"ids": ids})
    assert perplexity(far) == pytest.approx(2.0, rel=1e-2)


def test_padding_on_either_side_predicts_nothing_and_is_not_predicted():
    ids = np.array([[0, 1, 2, 3], [0, 1, 0, 0], [4, 4, 0, 1]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    found = likelihoods(scores(ids, 0.5), {"ids": ids, "mask": mask})
    np.testing.assert_allclose(found, [[3 * np.log(2), 3], [np.log(2), 1], [np.log(2), 1]], 1e-5)
    assert np.isnan(perplexity(np.zeros((2, 2))))  # not a single token


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((2, 5, WORDS), "for tokens of \\(2, 6\\)"),
        ((2, 6), "scores of the shape \\(2, 6\\)"),
        ((2, 6, 3), "tokens from 0 to 4, but there are scores for 3"),
    ],
)
def test_scores_that_do_not_fit_the_tokens_are_refused(shape, told):
    ids = np.arange(12).reshape(2, 6) % WORDS
    with pytest.raises(ValueError, match=told):
        likelihoods(np.zeros(shape, np.float32), {"ids": ids})


CONTRACT = Contract(
    (
        TensorSpec("ids", "int64", ("batch", "sequence")),
        TensorSpec("mask", "int64", ("batch", "past + sequence")),
        TensorSpec("past", "float32", ("batch", "past", 2)),
    ),
    (TensorSpec("logits", "float32", ("batch", "sequence", WORDS)),),
    (Axis("batch", 2, 3, 4), Axis("sequence", 1, 4, 8), Axis("past", 0, 4, 8)),
)
SAMPLES = {"ids": Sample("integers", (0.0, float(WORDS))), "mask": Sample("padding_mask")}


@pytest.fixture
def run(tmp_path):
    """Score a model of another certainty against one of 0.5, on ten rows of random tokens."""
    ids = np.random.default_rng(0).integers(0, WORDS, (10, 6))
    np.savez(tmp_path / "a.npz", ids=ids)
    asked = dataclasses.replace(ASKED, data=str(tmp_path / "a.npz"), empty=("past",))

    def model(certainty, cut=0):
        def call(feeds):
            assert feeds["past"].shape[1] == 0
            assert feeds["mask"].shape == feeds["ids"].shape
            assert feeds["mask"].all()
            return {"logits": scores(np.asarray(feeds["ids"]), certainty)[:, cut:]}

        return call

    def scored(certainty, cut=0):
        made_from = CaseInputs(CONTRACT, SAMPLES, 0, ModelFacts())
        run_rows(asked, made_from, None, model(0.5), tmp_path)
        return score_built(asked, CONTRACT, model(certainty, cut), tmp_path, lambda *_: None)

    return scored


def test_the_rise_is_a_share_with_an_interval(run):
    same = run(0.5)
    assert (same.drop, same.low, same.high, same.disagreed) == (0.0, 0.0, 0.0, 0)
    worse = run(0.9)  # too certain of a rule that random tokens do not follow
    assert worse.rises
    assert worse.candidate > worse.original
    assert worse.drop == pytest.approx(worse.candidate / worse.original - 1)
    assert 0 < worse.low <= worse.drop <= worse.high
    assert len(worse.disagreements) == worse.disagreed == 10
    assert run(1 / WORDS).drop < 0  # knowing nothing is better than a wrong rule


def test_scores_that_are_not_numbers_or_are_gone_are_no_score(run):
    for found, why in (
        (run(float("nan")), "returns NaN"),
        (run(0.9, cut=1), "scores of the shape (3, 5, 5)"),
    ):
        assert math.isnan(found.candidate)
        assert why in found.error

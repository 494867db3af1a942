"""Rows through an original and a built model, both plain functions here."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Evaluation
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.evaluate.task_runs import run_rows, score_built
from convkit.worker.job_context import StageFailedError, UnfitDataError
from convkit.worker.runtime_interface.sessions import RunFailedError

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 2)), TensorSpec("scale", "float32", ("batch", 1))),
    (TensorSpec("y", "float32", ("batch", 2)),),
    (Axis("batch", 3, 4, 8),),
)
MADE_FROM = CaseInputs(CONTRACT, {}, 0, ModelFacts())


def original(feeds):
    assert feeds["x"].dtype == np.float32
    assert 3 <= len(feeds["x"]) == len(feeds["scale"]) <= 8
    return {"y": feeds["x"] + 0.0}


@pytest.fixture
def asked(tmp_path):
    values = np.eye(2)[np.arange(10) % 2]
    np.savez(tmp_path / "a.npz", x=values, label=np.arange(10) % 2, half=values[:, :1])
    return Evaluation(str(tmp_path / "a.npz"), "accuracy", "y", {"x": "x"}, (), "label")


def score(asked, tmp_path, built):
    run_rows(asked, MADE_FROM, None, original, tmp_path)
    return score_built(asked, CONTRACT, built, tmp_path, lambda *_: None)


def test_every_row_is_scored_once_whatever_the_batches(asked, tmp_path):
    """Ten rows in batches of four: the last has two, and is filled up to three."""
    found = score(asked, tmp_path, original)
    assert (found.rows, found.original, found.candidate, found.disagreed) == (10, 1.0, 1.0, 0)
    swapped = score(asked, tmp_path / "again", lambda feeds: {"y": -feeds["x"]})
    assert (swapped.candidate, swapped.drop, swapped.disagreed) == (0.0, 1.0, 10)


def test_without_labels_embeddings_are_compared_with_the_originals(asked, tmp_path):
    wanted = dataclasses.replace(asked, metric="cosine", labels=None)
    assert score(wanted, tmp_path / "a", original).candidate == pytest.approx(1.0)

    def turned(feeds):
        return {"y": feeds["x"] @ np.array([[0.8, 0.6], [-0.6, 0.8]])}

    found = score(wanted, tmp_path / "b", turned)
    assert (found.original, found.candidate) == pytest.approx((1.0, 0.8))
    assert (found.disagreed, found.low) == (10, pytest.approx(0.2))


def test_nan_of_the_built_model_alone_is_no_score(asked, tmp_path):
    def nan(feeds):
        return {"y": feeds["x"] * np.float32("nan")}

    found = score(asked, tmp_path, nan)
    assert "returns NaN in rows 0 to 3" in found.error
    assert not found.candidate <= 1


def test_a_runtime_that_fails_or_loses_the_output_is_no_score(asked, tmp_path):
    def fail(feeds):
        raise RunFailedError("too many")

    for number, (run, why) in enumerate(
        ((fail, "failed on a row: too many"), (lambda _: {}, "no output 'y'"))
    ):
        found = score(asked, tmp_path / str(number), run)
        assert math.isnan(found.candidate)
        assert why in found.error


@pytest.mark.parametrize(
    ("column", "problem"),
    [("pixels", "no column 'pixels'"), ("label", "a row of 'label' in .* is int64 with 0 axes")],
)
def test_rows_that_do_not_fit_are_named(asked, tmp_path, column, problem):
    wrong = Evaluation(asked.data, "accuracy", "y", {"x": column}, (), "label")
    with pytest.raises(UnfitDataError, match=problem):
        run_rows(wrong, MADE_FROM, None, original, tmp_path)


def test_texts_need_a_tokenizer(asked, tmp_path):
    wrong = Evaluation(asked.data, "accuracy", "y", {}, ("label",), "label")
    with pytest.raises(StageFailedError, match="the model has no tokenizer"):
        run_rows(wrong, MADE_FROM, None, original, tmp_path)


@pytest.mark.thorough
def test_scores_in_bfloat16_are_numbers_and_not_bits(asked, tmp_path):
    low = np.dtype(ml_dtypes.bfloat16)
    contract = dataclasses.replace(CONTRACT, outputs=(TensorSpec("y", "bfloat16", ("batch", 2)),))
    made_from = dataclasses.replace(MADE_FROM, contract=contract)

    def bits(values):
        return {"y": values.astype(low).view("V2")}

    run_rows(asked, made_from, None, lambda feeds: bits(feeds["x"]), tmp_path)
    for sign, expected in ((1, 1.0), (-1, 0.0)):

        def built(feeds, sign=sign):
            return bits(sign * feeds["x"])

        found = score_built(asked, contract, built, tmp_path, lambda *_: None)
        assert (found.original, found.candidate) == (1.0, expected)
    lost = score_built(
        asked, contract, lambda feeds: bits(np.nan * feeds["x"]), tmp_path, lambda *_: None
    )
    assert "it returns NaN" in (lost.error or "")

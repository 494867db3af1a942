"""Generated tokens: of a model that counts, through rows of arrays and of texts."""

import dataclasses
import math

import numpy as np
import pytest
from word_tokenizers import word_tokenizer

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Evaluation, Sample
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.evaluate.greedy_generation import NOTHING, generate_tokens, prompts
from convkit.worker.evaluate.task_runs import run_rows, score_built
from convkit.worker.job_context import UnfitDataError

WORDS = 11  # [PAD] [UNK] [CLS] a b c d e f g h
CONTRACT = Contract(
    (
        TensorSpec("input_ids", "int64", ("batch", "sequence")),
        TensorSpec("attention_mask", "int64", ("batch", "past + sequence")),
        TensorSpec("past", "float32", ("batch", "past", 2)),
    ),
    (TensorSpec("logits", "float32", ("batch", "sequence", WORDS)),),
    (Axis("batch", 1, 2, 2), Axis("sequence", 1, 4, 8), Axis("past", 0, 4, 8)),
)
SAMPLES = {"input_ids": Sample("token_ids"), "attention_mask": Sample("padding_mask")}
ASKED = Evaluation(
    "",
    "wer",
    "logits",
    {},
    ("prompt",),
    "text",
    "attention_mask",
    tokens="input_ids",
    empty=("past",),
    generate=3,
)


def counting(by=1):
    """Return a model whose next token is its last real one and `by`, whatever the padding says."""

    def run(feeds):
        ids, mask = np.asarray(feeds["input_ids"]), np.asarray(feeds["attention_mask"])
        assert ids.shape == mask.shape
        assert feeds["past"].shape[1] == 0
        scores = np.zeros((*ids.shape, WORDS), np.float32)
        rows, places = np.indices(ids.shape)
        scores[rows, places, (ids + by) % WORDS] = 1
        scores[mask == 0] = -1  # never read
        return {"logits": scores}

    return run


def score(tmp_path, asked, built, rows, tokenizer=word_tokenizer):
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    asked = dataclasses.replace(asked, data=str(tmp_path / "rows.jsonl"))
    made_from = CaseInputs(CONTRACT, SAMPLES, 0, ModelFacts(vocabulary=WORDS, pad_token=0))
    run_rows(asked, made_from, tokenizer, counting(), tmp_path)
    return score_built(asked, CONTRACT, built, tmp_path, lambda *_: None)


TEXTS = (
    '{"prompt": "a", "text": "b c d"}',
    '{"prompt": "a b c", "text": "d e f"}',
    '{"prompt": "b", "text": "c d x"}',
)


def test_texts_of_different_lengths_are_continued_and_read_by_the_tokenizer(tmp_path):
    found = score(tmp_path, ASKED, counting(), TEXTS)
    assert (found.original, found.candidate, found.disagreed) == (pytest.approx(1 / 9), 1 / 9, 0)
    assert (found.rises, found.relative) == (True, False)
    worse = score(tmp_path, ASKED, counting(by=2), TEXTS)
    assert worse.candidate == pytest.approx(8 / 9)  # "c e g" has one word of "c d x"
    assert (worse.disagreed, worse.disagreements[0].candidate) == (3, "c e g")


def test_a_mask_with_1_at_padding_says_the_same_of_rows_to_be_continued():
    asked = dataclasses.replace(ASKED, generate=2)
    feeds = {"input_ids": np.array([[3, 0, 0, 0], [5, 6, 0, 0]]), "past": np.zeros((2, 0, 2))}
    real = feeds["input_ids"] != 0
    found = []
    for padding, mask in ((0, real), (1, ~real)):
        seen = []

        def run(given, seen=seen, padding=padding):
            seen.append((given["attention_mask"] != padding).sum())
            return counting()({**given, "attention_mask": given["attention_mask"] != padding})

        tried = dataclasses.replace(asked, padding=padding)
        tokens = generate_tokens(run, {**feeds, "attention_mask": mask.astype(int)}, tried, [])
        found.append((tokens.tolist(), seen))
    assert found[0] == found[1] == ([[4, 5], [7, 8]], [3, 5])
    kept = [
        prompts(feeds | {"attention_mask": np.full((2, 4), 7)}, {}, tried)
        for tried in (asked, dataclasses.replace(asked, padding=1))
    ]
    np.testing.assert_array_equal(kept[0]["attention_mask"], [[1, 1, 0, 0]] * 2)
    np.testing.assert_array_equal(kept[1]["attention_mask"], [[0, 0, 1, 1]] * 2)


def test_without_a_tokenizer_tokens_are_words(tmp_path):
    asked = dataclasses.replace(ASKED, texts=(), inputs={"input_ids": "ids"}, labels="next")
    rows = ['{"ids": [3, 4], "next": [5, 6, 7]}', '{"ids": [2, 3], "next": [4, 5, 9]}']
    found = score(tmp_path, asked, counting(), rows, None)
    assert (found.original, found.candidate) == (pytest.approx(1 / 6), pytest.approx(1 / 6))
    assert score(tmp_path, asked, counting(by=3), rows, None).candidate == 1.0


def test_a_row_ends_at_its_end_token():
    feeds = {"input_ids": np.array([[3, 0, 0, 0], [5, 6, 0, 0]])}
    feeds["attention_mask"] = (feeds["input_ids"] != 0).astype(np.int64)
    feeds["past"] = np.zeros((2, 0, 2))
    asked = dataclasses.replace(ASKED, generate=2)
    found = generate_tokens(counting(), feeds, asked, [4])
    assert found.tolist() == [[4, NOTHING], [7, 8]]


@pytest.mark.parametrize(
    ("changes", "rows", "tokenizer", "told"),
    [
        ({"generate": 5}, TEXTS, word_tokenizer, "longest row has 4 tokens; 5 more are over axes"),
        (
            {"texts": (), "inputs": {"attention_mask": "m"}},
            ('{"m": [1], "text": "a"}',) * 2,
            word_tokenizer,
            "do not say what input_ids begins with",
        ),
        (
            {"texts": (), "inputs": {"input_ids": "ids"}},
            ('{"ids": [1], "text": "a"}',) * 2,
            None,
            "the model has no tokenizer",
        ),
        (
            {"texts": (), "inputs": {"input_ids": "ids"}},
            ('{"ids": [1], "text": [4]}',) * 2,
            word_tokenizer,
            "the labels are not texts",
        ),
    ],
)
def test_rows_that_cannot_be_continued_are_named(tmp_path, changes, rows, tokenizer, told):
    asked = dataclasses.replace(ASKED, **changes)
    with pytest.raises(UnfitDataError, match=told) as caught:
        score(tmp_path, asked, counting(), rows, tokenizer)
    assert [each.code for each in caught.value.findings] == ["E412"]


def test_scores_that_are_not_numbers_are_no_score(tmp_path):
    def broken(feeds):
        return {"logits": counting()(feeds)["logits"] * np.float32("nan")}

    found = score(tmp_path, ASKED, broken, TEXTS)
    assert math.isnan(found.candidate)
    assert math.isnan(found.drop)
    assert "NaN for generated token 1" in found.error

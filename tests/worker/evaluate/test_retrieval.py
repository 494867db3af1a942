"""recall@K of two columns of texts: the first one searches for the second one."""

import numpy as np
import pytest

from convkit.protocol.messages import Evaluation
from convkit.worker.evaluate.paired_bootstrap import compare_decisions
from convkit.worker.evaluate.task_scores import scorer_of
from convkit.worker.job_context import StageFailedError

DOCUMENTS = ["x", "y", "x", "z"]  # the first and the third row ask for one document
QUERIES = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]])
PLACES = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 1.0]])


def scorer(count):
    asked = Evaluation("", f"recall@{count}", "y", {}, ("query", "document"), None)
    return scorer_of(asked, None, DOCUMENTS)


def decided(count, queries=QUERIES):
    return scorer(count).decide({"query": list(queries), "document": list(PLACES)})


def test_rows_with_one_document_are_one_candidate():
    assert decided(2) == [["x", "y"], ["y", "z"], ["x", "y"], ["y", "z"]]
    assert scorer(1).score(decided(1), DOCUMENTS) == 0.75
    assert scorer(2).score(decided(2), DOCUMENTS) == 1.0


def test_the_length_of_an_embedding_does_not_count():
    lengths = np.array([[5.0], [0.1], [1e-3], [1e3]])
    assert decided(2, QUERIES * lengths) == decided(2)


def test_embeddings_that_turn_lose_documents():
    found = compare_decisions(
        "recall@1", scorer(1), decided(1), decided(1, QUERIES[:, ::-1]), DOCUMENTS
    )
    assert (found.original, found.candidate, found.drop, found.disagreed) == (0.75, 0.0, 0.75, 4)


def test_an_embedding_without_a_direction_finds_nothing_by_chance():
    found = decided(1, np.full_like(QUERIES, np.nan))
    places = scorer(1).decide({"query": list(QUERIES), "document": list(PLACES * np.nan)})
    assert len(found) == len(places) == 4


def test_asking_for_every_document_is_refused():
    with pytest.raises(StageFailedError, match="there are 3 different documents"):
        decided(3)

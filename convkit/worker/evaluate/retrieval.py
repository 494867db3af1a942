"""Retrieval: which documents a query's embedding finds first."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from convkit.worker.evaluate.row_reading import Predictions
from convkit.worker.job_context import StageFailedError

_BLOCK = 256  # queries that are compared with all documents at once


def retrieved(count: int, documents: Sequence[Any], predictions: Predictions) -> list[list[Any]]:
    """Return the `count` documents with the largest cosine for each row's first text, the nearest
    first. Rows with the same document are one candidate. Raises StageFailedError if `count` is all
    of them.
    """
    queries, candidates = (_unit(rows) for rows in predictions.values())
    different = len(set(documents))
    if different <= count:
        raise StageFailedError(
            f"evaluate.metric: recall@{count} is 1 for any model: there are {different} different"
            " documents. Write a smaller number, or add documents."
        )
    found = []
    for start in range(0, len(queries), _BLOCK):
        similar = queries[start : start + _BLOCK] @ candidates.T
        # NaN comes last.
        found += [_first(count, documents, np.argsort(-row, kind="stable")) for row in similar]
    return found


def _first(count: int, documents: Sequence[Any], order: np.ndarray) -> list[Any]:
    different: dict[Any, None] = {}
    for row in order:
        different.setdefault(documents[row])
        if len(different) == count:
            break
    return list(different)


def _unit(rows: Sequence[np.ndarray]) -> np.ndarray:
    values = np.stack([row.ravel() for row in rows]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):  # no direction: similar to nothing
        return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))

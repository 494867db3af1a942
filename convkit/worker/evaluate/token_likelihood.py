"""How well a language model predicts the tokens it is given: the log-likelihood of each row."""

import numpy as np

from convkit.protocol.messages import Evaluation
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.values.padding_masks import padding_positions


def row_likelihoods(outputs: Feeds, feeds: Feeds, evaluation: Evaluation) -> np.ndarray:
    """Return how well each row's tokens are predicted, [rows, 2] in float64: the negative
    log-likelihood in nats, and the number of tokens that it sums over.

    The scored output is [rows, positions, tokens], before softmax: what a position has predicts
    the token that follows. A prediction counts if both its position and the token are real.
    Raises ValueError for scores that do not fit the tokens.
    """
    assert evaluation.tokens is not None
    scores = outputs[evaluation.output]
    tokens = np.asarray(feeds[evaluation.tokens])
    if scores.ndim != 3 or scores.shape[:2] != tokens.shape:
        raise ValueError(f"scores of the shape {scores.shape} for tokens of {tokens.shape}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < scores.shape[2]):
        raise ValueError(
            f"the rows have tokens from {tokens.min()} to {tokens.max()}, but there are scores for"
            f" {scores.shape[2]}"
        )
    padding = padding_positions(feeds, evaluation.mask, evaluation.padding)
    real = np.ones(tokens.shape, dtype=bool) if padding is None else ~padding
    counted = real[:, :-1] & real[:, 1:]
    losses = np.zeros((len(tokens), 2))
    for row in range(len(tokens)):  # one row at a time: a vocabulary is large
        places = np.flatnonzero(counted[row])
        losses[row] = _loss(np.asarray(scores[row])[places], tokens[row, places + 1]), len(places)
    return losses


def perplexity(losses: np.ndarray) -> float:
    """Return the perplexity of rows of `row_likelihoods`: exp of the mean loss per token; NaN
    without a token.
    """
    loss, count = losses.sum(axis=0)
    return float(np.exp(loss / count)) if count else float("nan")


def _loss(scores: np.ndarray, tokens: np.ndarray) -> float:
    """Return the sum of -log softmax(scores)[token] over positions."""
    wide = scores.astype(np.float64)
    largest = wide.max(axis=-1, initial=-np.inf)
    total = largest + np.log(np.exp(wide - largest[:, None]).sum(axis=-1))
    return float((total - wide[np.arange(len(tokens)), tokens]).sum())

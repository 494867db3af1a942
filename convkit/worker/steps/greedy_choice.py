"""Greedy generation: every sequence is continued with the token of the highest score."""

from collections.abc import Callable, Sequence

import numpy as np

from convkit.protocol.messages import GreedyRow, Steps
from convkit.worker.cases.case import Feeds
from convkit.worker.metrics.tensor_metrics import as_float64
from convkit.worker.steps.call_inputs import run_calls

NO_TOKEN = -1


def greedy_scores(
    run: Callable[[Feeds], Feeds], inputs: Sequence[Feeds], first: Feeds, steps: Steps
) -> list[np.ndarray]:
    """Run a loop in which each call gets the tokens that the call before it chose.

    Returns the scores after each call's last position, [rows, tokens] in float64.
    """
    tokens, output = steps.tokens, steps.scores
    assert tokens is not None
    assert output is not None
    scores: list[np.ndarray] = []

    def chosen(number: int, feeds: Feeds) -> Feeds:
        if number == 0:
            return feeds
        best = scores[-1].argmax(axis=-1)[:, None]
        return feeds | {tokens: best.astype(feeds[tokens].dtype)}

    for outputs in run_calls(run, inputs, first, steps, inward=chosen):
        latest = as_float64(np.ascontiguousarray(outputs[output][:, -1]))
        scores.append(latest)
    return scores


def chosen_tokens(scores: np.ndarray) -> np.ndarray:
    """Return the token of the highest score, [rows, calls], for scores of [calls, rows, tokens];
    `NO_TOKEN` where a score is NaN, which chooses nothing.
    """
    best = scores.argmax(axis=-1)
    best[np.isnan(scores).any(axis=-1)] = NO_TOKEN
    return best.T


def compare_tokens(
    scores: np.ndarray, found: np.ndarray, ends: Sequence[int] = ()
) -> tuple[GreedyRow, ...]:
    """Return where each row's tokens differ first from the best of `scores`, up to the first token
    that ends the sequence. From there on, the sequences are different ones.

    `scores` are [calls, rows, tokens], `found` [rows, calls]. A row of `found` differs by an
    infinite margin where it ends too early or holds no token of the vocabulary.
    """
    rows = []
    for row in range(found.shape[0]):
        best = scores[:, row].argmax(axis=-1)
        last = next((place for place, token in enumerate(best) if token in ends), len(best) - 1)
        rows.append(_first_difference(row, scores[: last + 1, row], best, found[row]))
    return tuple(rows)


def _first_difference(
    row: int, scores: np.ndarray, best: np.ndarray, found: np.ndarray
) -> GreedyRow:
    count = len(scores)
    for place in range(count):
        wanted = int(best[place])
        chosen = int(found[place]) if place < len(found) and found[place] != NO_TOKEN else None
        if chosen == wanted and not np.isnan(scores[place]).any():
            continue
        known = chosen is not None and 0 <= chosen < scores.shape[1]
        margin = float(scores[place, wanted] - scores[place, chosen]) if known else float("inf")
        return GreedyRow(row, place, count, wanted, chosen, margin)
    return GreedyRow(row, count, count)

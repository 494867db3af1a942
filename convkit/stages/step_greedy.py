"""Greedy generation: every sequence is continued with the token of the highest score."""

from collections.abc import Callable, Sequence

import numpy as np

from convkit.cases.case import Feeds
from convkit.cases.steps import run_calls
from convkit.metrics.tensors import as_float64
from convkit.worker.protocol import GreedyRow, Steps


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


def compare_greedy(
    expected: Sequence[np.ndarray], found: Sequence[np.ndarray]
) -> tuple[GreedyRow, ...]:
    """Return where each row's tokens differ first: from there on, the sequences are different ones.

    Both are the scores after each call, [rows, tokens]. Scores that are NaN choose nothing, so
    they never agree.
    """
    rows = []
    for row in range(expected[0].shape[0]):
        agreed = 0
        for agreed, (one, other) in enumerate(zip(expected, found, strict=True)):
            wanted, chosen = int(one[row].argmax()), int(other[row].argmax())
            if wanted != chosen or np.isnan(one[row]).any() or np.isnan(other[row]).any():
                margin = float(one[row, wanted] - one[row, chosen])
                rows.append(GreedyRow(row, agreed, len(expected), wanted, chosen, margin))
                break
        else:
            rows.append(GreedyRow(row, agreed + 1, len(expected)))
    return tuple(rows)

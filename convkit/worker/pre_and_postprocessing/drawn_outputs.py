"""Outputs that are drawn to compare two postprocessors: every label is the best one somewhere, some
scores are near any threshold, and boxes overlap more or less.

Outputs of random weights, or of a handful of inputs, would show few labels and keep no boxes.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.protocol.postprocessing_constants import Postprocessing

Outputs = Mapping[str, np.ndarray]

# More labels than this are not all drawn; a change of their order shows in a part of them, too.
_MOST_LABELS = 4096
# Even few labels are drawn so often.
_LEAST_DRAWS = 8
# In logits: how far the best score is above the next, and what it is, between the probabilities of
# 0.02 and 0.98.
_LEADS = (0.1, 5.0)
_BEST = (-4.0, 4.0)
# A symbol of a text lasts so long.
_LONGEST = 3


def drawn_outputs(
    output: str, constants: Postprocessing, outputs: Outputs, random: np.random.Generator
) -> Iterator[Outputs]:
    """Return copies of `outputs`, real ones of the original, with other scores and boxes."""
    name = constants.scores or output
    like = np.asarray(outputs[name], np.float64)
    *leading, labels = like.shape
    lines = math.prod(leading)
    if not lines or not labels:
        return
    for number in range(max(_LEAST_DRAWS, -(-min(labels, _MOST_LABELS) // lines))):
        best = (np.arange(lines) + number * lines) % labels
        if constants.text is not None:
            best = _lasting(best, random)
        logits = random.normal(0.0, 1.0, (lines, labels))
        logits[np.arange(lines), best] = logits.max(-1) + random.uniform(*_LEADS, lines)
        logits += (random.uniform(*_BEST, lines) - logits.max(-1))[:, None]
        drawn = dict(outputs)
        drawn[name] = _like(logits.reshape(like.shape), like).astype(outputs[name].dtype)
        if constants.boxes is not None:
            drawn[output] = _boxes(outputs[output], random)
        yield drawn


def _lasting(best: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return symbols of which some last for several times."""
    return np.repeat(best, random.integers(1, _LONGEST + 1, len(best)))[: len(best)]


def _like(logits: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return scores of the kind of the original's: probabilities if those are."""
    if not (like.min() >= 0.0 and like.max() <= 1.0):
        return logits
    if np.allclose(like.sum(-1), 1.0, atol=1e-3):
        shares: np.ndarray = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return shares
    chances: np.ndarray = 1.0 / (1.0 + np.exp(-logits))
    return chances


def _boxes(like: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return boxes that are possible as corners and as centers with sizes; they share a place, so
    that they overlap by all degrees.
    """
    scale = max(1.0, float(np.nanmax(np.abs(like), initial=0.0)))
    low = random.uniform(0.05, 0.45, (*like.shape[:-1], 2))
    high = random.uniform(0.5, 0.95, (*like.shape[:-1], 2))
    return (scale * np.concatenate([low, high], axis=-1)).astype(like.dtype)

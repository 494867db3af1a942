"""Turns a model's outputs into labels, boxes or text, as the constants of the contract say."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from convkit.protocol.postprocessing_constants import (
    Activation,
    BoxConstants,
    BoxFormat,
    CtcConstants,
    LabelConstants,
    Postprocessing,
)

# Boxes of one object overlap by at least this share, as in `metrics.row_matching`.
_SAME_OBJECT = 0.5
# Of the largest coordinate: roundings of float32 move a corner by less.
_SAME_PLACE = 1e-5


@dataclasses.dataclass(frozen=True)
class AppResult:
    """A label, a detection, or a text. `score` follows the activation; `box` has corners. `index`
    is the label's number in the scores, `row` the box's in its image.
    """

    label: str
    score: float | None = None
    box: tuple[float, ...] | None = None
    index: int | None = None
    row: int | None = None


# What is found in one image, sound or text.
Results = tuple[AppResult, ...]


def results(
    output: str, constants: Postprocessing, outputs: Mapping[str, np.ndarray]
) -> list[Results]:
    """Return an app's results for an output, one for each row of the batch in its order.

    Labels have one entry for every leading position; boxes and text have one for each image or
    sound. Detections are in the order of their scores.
    """
    values = np.asarray(outputs[output], np.float64)
    if constants.labels is not None:
        lines = values.reshape(-1, values.shape[-1])
        return [_labels(constants.labels, line) for line in lines]
    images = values.reshape(-1, *values.shape[-2:])
    if constants.text is not None:
        return [(AppResult(_text(constants.text, each)),) for each in images]
    assert constants.boxes is not None
    scores = np.asarray(outputs[constants.boxes.scores], np.float64)
    scores = scores.reshape(-1, *scores.shape[-2:])
    return [
        detections(constants.boxes, boxes, each) for boxes, each in zip(images, scores, strict=True)
    ]


def activated(activation: Activation, scores: np.ndarray) -> np.ndarray:
    """Return scores after the activation along their last dimension."""
    if activation == "none":
        return scores
    if activation == "sigmoid":
        halves: np.ndarray = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return halves
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    shares: np.ndarray = shifted / shifted.sum(-1, keepdims=True)
    return shares


def corners(boxes: np.ndarray, box_format: BoxFormat) -> np.ndarray:
    """Return boxes [..., 4] as x1, y1, x2, y2."""
    if box_format == "corners":
        return boxes
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([center - half, center + half], axis=-1)


def overlap(one: Sequence[float], others: np.ndarray) -> np.ndarray:
    """Return the intersection over union of a box with others [boxes, 4], all with corners; NaN for
    boxes without area.
    """
    box = np.asarray(one, np.float64)
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.maximum(sides, 0.0).prod(-1)
    areas = (others[:, 2:] - others[:, :2]).prod(-1) + (box[2:] - box[:2]).prod()
    with np.errstate(divide="ignore", invalid="ignore"):
        shares: np.ndarray = shared / (areas - shared)
    return shares


def detections(constants: BoxConstants, boxes: np.ndarray, scores: np.ndarray) -> Results:
    """Return the detections of one image: boxes [rows, 4] and scores [rows, labels]."""
    found = activated(constants.activation, scores)
    if constants.no_object:
        found = found[:, :-1]
    if constants.several:
        rows, labels = (each.ravel() for each in np.indices(found.shape))
    else:
        rows, labels = np.arange(len(found)), found.argmax(-1)
    values = found[rows, labels]
    order = np.argsort(-values, kind="stable")[: len(found)]
    order = order[values[order] > constants.threshold]
    framed = corners(boxes, constants.format)
    if constants.overlap is not None:
        order = _without_overlaps(order, framed[rows], labels, constants.overlap)
    return tuple(
        AppResult(
            named(constants.names, int(labels[each])),
            float(values[each]),
            tuple(map(float, framed[rows[each]])),
            int(labels[each]),
            int(rows[each]),
        )
        for each in order
    )


def named(names: Sequence[str], index: int) -> str:
    """Return a label's name, or its number if it has none."""
    return names[index] if index < len(names) else str(index)


def paired(first: Results, second: Results, *, by_label: bool = True) -> list[tuple[int, int]]:
    """Return which detections of one image belong together, by label and overlap; each is in one
    pair at most.
    """
    free = list(range(len(second)))
    pairs = []
    for place, one in enumerate(first):
        assert one.box is not None
        likely = [each for each in free if not by_label or second[each].label == one.label]
        if not likely:
            continue
        others = np.array([second[each].box for each in likely], np.float64)
        shares = np.nan_to_num(overlap(one.box, others))
        # Boxes without area overlap nothing, not even themselves.
        apart = np.abs(others - np.asarray(one.box)).max(-1)
        shares[apart <= _SAME_PLACE * np.abs(one.box).max()] = 1.0
        best = int(shares.argmax())
        if shares[best] >= _SAME_OBJECT:
            pairs.append((place, likely[best]))
            free.remove(likely[best])
    return pairs


def _labels(constants: LabelConstants, scores: np.ndarray) -> Results:
    found = activated(constants.activation, scores)
    if constants.threshold is None:
        chosen = [int(found.argmax())]
    else:
        order = np.argsort(-found, kind="stable")
        chosen = [int(each) for each in order if found[each] > constants.threshold]
    return tuple(
        AppResult(named(constants.names, each), float(found[each]), index=each) for each in chosen
    )


def _text(constants: CtcConstants, scores: np.ndarray) -> str:
    best = scores.argmax(-1)
    starts = np.concatenate([[True], best[1:] != best[:-1]]) & (best != constants.blank)
    symbols = [named(constants.symbols, int(each)) for each in best[starts]]
    return "".join(" " if each == constants.space else each for each in symbols)


def _without_overlaps(
    order: np.ndarray, boxes: np.ndarray, labels: np.ndarray, most: float
) -> np.ndarray:
    """Return the candidates, best first, that overlap no better one of their label by more."""
    kept: list[int] = []
    for each in order:
        rivals = [other for other in kept if labels[other] == labels[each]]
        if not rivals or not np.any(overlap(boxes[each], boxes[rivals]) > most):
            kept.append(int(each))
    return np.array(kept, np.int64)

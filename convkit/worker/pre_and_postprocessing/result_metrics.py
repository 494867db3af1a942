"""How the labels, detections and texts of two models differ, and how near to each other the choices
were.
"""

from collections.abc import Mapping

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import ResultMetrics
from convkit.protocol.postprocessing_constants import BoxConstants, LabelConstants, Postprocessing
from convkit.worker.pre_and_postprocessing.results import (
    AppResult,
    Results,
    activated,
    overlap,
    paired,
    results,
)

Outputs = Mapping[str, np.ndarray]


def result_metrics(
    contract: Contract, case: str, expected: Outputs, found: Outputs
) -> tuple[ResultMetrics, ...]:
    """Return how the results of a built model's outputs differ from those of the original's."""
    return tuple(
        compare_results(case, spec.name, spec.postprocess, expected, found)
        for spec in contract.outputs
        if spec.postprocess is not None
        and all(
            name in found and found[name].shape == expected[name].shape
            for name in (spec.name, spec.postprocess.scores or spec.name)
        )
    )


def compare_results(
    case: str, output: str, constants: Postprocessing, expected: Outputs, found: Outputs
) -> ResultMetrics:
    """Return how many rows get another result, and the margin of the clearest one: how far the
    original's scores would have to move for the result to change, in the scores' own unit.
    """
    name = constants.scores or output
    pairs = list(
        zip(results(output, constants, expected), results(output, constants, found), strict=True)
    )
    scores = np.asarray(expected[name], np.float64)
    other_scores = np.asarray(found[name], np.float64)
    depth = 1 if constants.labels is not None else 2
    lines = scores.reshape(-1, *scores.shape[scores.ndim - depth :])
    other_lines = other_scores.reshape(lines.shape)
    differing, margin, example = 0, 0.0, ""
    for place, (wanted, made) in enumerate(pairs):
        if _same(wanted, made):
            continue
        here = _margin(constants, wanted, made, lines[place], other_lines[place])
        if not differing or here > margin:
            margin = here
            example = f"row {place}: {_names(made)}, {_names(wanted)} from the original"
        differing += 1
    return ResultMetrics(case, output, name, len(pairs), differing, margin, example)


def _same(one: Results, other: Results) -> bool:
    if len(one) != len(other):
        return False
    if one and one[0].box is not None:
        return len(paired(one, other)) == len(one)
    return sorted(each.label for each in one) == sorted(each.label for each in other)


def _margin(
    constants: Postprocessing,
    wanted: Results,
    made: Results,
    scores: np.ndarray,
    others: np.ndarray,
) -> float:
    if constants.text is not None:  # the clearest time at which another symbol is best
        times = np.arange(len(scores))
        gaps = scores.max(-1) - scores[times, others.argmax(-1)]
        return float(gaps.max())
    if constants.labels is not None:
        return _label_margin(constants.labels, wanted, made, scores)
    assert constants.boxes is not None
    pairs = paired(wanted, made)
    left = [each for place, each in enumerate(wanted) if place not in {one for one, _ in pairs}]
    more = [each for place, each in enumerate(made) if place not in {one for _, one in pairs}]
    return max(_box_margin(constants.boxes, each, wanted, scores) for each in (*left, *more))


def _label_margin(
    constants: LabelConstants, wanted: Results, made: Results, scores: np.ndarray
) -> float:
    if constants.threshold is None:
        one, other = wanted[0].index, made[0].index
        return float(scores[one] - scores[other])
    changed = {each.index for each in wanted} ^ {each.index for each in made}
    distances = _to_threshold(constants, constants.threshold, scores)
    return max(float(distances[each]) for each in changed if each is not None)


def _box_margin(
    constants: BoxConstants, each: AppResult, wanted: Results, scores: np.ndarray
) -> float:
    """Return the smallest change of the original's scores that adds or removes a detection."""
    assert each.row is not None
    assert each.index is not None
    assert each.box is not None
    line = scores[each.row]
    near = [_to_threshold(constants, constants.threshold, line)[each.index]]
    if not constants.several:
        choices = line[:-1] if constants.no_object else line
        near.append(choices.max() - choices[each.index])  # another label would be the best
        if near[-1] == 0.0:
            near[-1] = choices.max() - np.partition(choices, -2)[-2] if len(choices) > 1 else np.inf
    if constants.overlap is not None:  # a rival of the same object could be the best
        rivals = [other for other in wanted if other.label == each.label and other.row != each.row]
        near += [
            abs(line[each.index] - scores[other.row, other.index])
            for other in rivals
            if other.box is not None
            and overlap(each.box, np.array([other.box]))[0] > constants.overlap
        ]
    return float(min(near))


def _to_threshold(
    constants: LabelConstants | BoxConstants, threshold: float, scores: np.ndarray
) -> np.ndarray:
    """Return how far each score is from the one that the activation makes the threshold."""
    if constants.activation == "none":
        return np.abs(scores - threshold)
    chances = activated(constants.activation, scores)
    with np.errstate(divide="ignore"):
        logits = np.log(chances) - np.log1p(-chances)
    wanted = np.log(threshold / (1 - threshold)) if 0 < threshold < 1 else np.inf
    distances: np.ndarray = np.abs(logits - wanted)
    return distances


def _names(found: Results) -> str:
    shown = ", ".join(repr(each.label) for each in found[:3]) or "nothing"
    return shown + (", ..." if len(found) > 3 else "")

"""Labels, detections and text that the constants make of outputs, and how two models' differ."""

import numpy as np
import pytest

from convkit.protocol.postprocessing_constants import (
    BoxConstants,
    CtcConstants,
    LabelConstants,
    Postprocessing,
)
from convkit.worker.pre_and_postprocessing.result_metrics import compare_results
from convkit.worker.pre_and_postprocessing.results import (
    AppResult,
    activated,
    overlap,
    paired,
    results,
)

BOXES = Postprocessing(
    boxes=BoxConstants("scores", ("cat", "dog"), "none", "corners", 0.5, overlap=0.5)
)
# The second box overlaps the first by 0.81, the third is apart.
CORNERS = np.array([[[0, 0, 10, 10], [0, 0, 9, 9], [20, 20, 30, 30]]], np.float32)


def labels(constants: LabelConstants, scores: list[list[float]]) -> list[list[str]]:
    found = results("y", Postprocessing(labels=constants), {"y": np.array(scores)})
    return [[each.label for each in row] for row in found]


def test_the_best_label_of_each_row() -> None:
    assert labels(LabelConstants(("a", "b")), [[0, 1], [3, 2]]) == [["b"], ["a"]]
    assert labels(LabelConstants(), [[0, 1, 5]]) == [["2"]]


def test_labels_above_a_threshold_best_first() -> None:
    several = LabelConstants(("a", "b", "c"), "sigmoid", 0.5)
    assert labels(several, [[1, -1, 2], [-1, -1, -1]]) == [["c", "a"], []]


def test_activations_stay_finite() -> None:
    scores = np.array([-1000.0, 0.0, 1000.0])
    assert activated("sigmoid", scores) == pytest.approx([0, 0.5, 1])
    assert activated("softmax", scores) == pytest.approx([0, 0, 1])
    assert activated("none", scores) is scores


def detected(scores: list[list[float]], constants: Postprocessing = BOXES) -> list[str]:
    [found] = results("boxes", constants, {"boxes": CORNERS, "scores": np.array([scores])})
    return [f"{each.label}{each.row}" for each in found]


def test_of_boxes_of_one_label_that_overlap_the_best_is_kept() -> None:
    assert detected([[0.7, 0], [0.9, 0], [0.6, 0]]) == ["cat1", "cat2"]
    assert detected([[0.7, 0], [0, 0.9], [0.6, 0]]) == ["dog1", "cat0", "cat2"]
    assert detected([[0.7, 0], [0.9, 0], [0.5, 0]]) == ["cat1"]


def test_a_box_with_several_labels_and_the_label_of_nothing() -> None:
    several = Postprocessing(boxes=BoxConstants("scores", (), "none", "corners", several=True))
    assert detected([[0.7, 0.8], [0, 0], [0, 0]], several) == ["10", "00"]
    nothing = Postprocessing(boxes=BoxConstants("scores", (), "none", "corners", no_object=True))
    assert detected([[0.7, 0.8], [0.2, 0.9], [0, 0]], nothing) == ["00"]


def test_centers_become_corners() -> None:
    made = Postprocessing(boxes=BoxConstants("scores", (), "none", "center"))
    outputs = {"boxes": np.array([[[5, 6, 2, 4]]]), "scores": np.ones((1, 1, 1))}
    [[found]] = results("boxes", made, outputs)
    assert found.box == (4, 4, 6, 8)


def test_overlap_is_intersection_over_union() -> None:
    found = overlap((0, 0, 2, 2), np.array([[0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]]))
    assert found == pytest.approx([1, 1 / 3, 0])


def test_boxes_without_area_belong_together_only_at_the_same_place() -> None:
    here, nearly = (
        AppResult("cat", 0.9, (1.0, 0.0, 1.0, 4.0)),
        AppResult("cat", 0.9, (1, 0, 1.00001, 4)),
    )
    elsewhere = AppResult("cat", 0.9, (2.0, 0.0, 2.0, 4.0))
    assert paired((here,), (elsewhere, nearly)) == [(0, 1)]
    assert paired((here,), (elsewhere,)) == []
    broken = AppResult("cat", 0.9, (float("nan"), 0.0, 1.0, 4.0))
    assert paired((broken,), (broken,)) == []


def test_text_is_collapsed_before_blanks_are_dropped() -> None:
    made = Postprocessing(text=CtcConstants(("-", "l", "o", "|"), space="|"))
    indices = [2, 2, 0, 1, 1, 0, 1, 3, 2, 0]
    [[found]] = results("y", made, {"y": np.eye(4)[indices][None]})
    assert found.label == "oll o"


def margins(constants: Postprocessing, one: object, other: object) -> tuple[int, float]:
    given = {"y": np.array(one, float)}, {"y": np.array(other, float)}
    found = compare_results("typical", "y", constants, *given)
    return found.differing, found.margin


def test_the_margin_is_what_the_original_prefers_its_label_by() -> None:
    made = Postprocessing(labels=LabelConstants())
    assert margins(made, [[0, 1], [2, 0.5]], [[0, 1], [0, 1]]) == (1, 1.5)
    assert margins(made, [[0, 1]], [[0.4, 0.5]]) == (0, 0.0)


def test_the_margin_of_a_threshold_is_in_the_scores_own_unit() -> None:
    made = Postprocessing(labels=LabelConstants((), "sigmoid", 0.5))
    differing, margin = margins(made, [[0.25, -3]], [[-0.25, -3]])
    assert (differing, margin) == (1, pytest.approx(0.25))


def test_the_margin_of_a_text_is_the_clearest_symbol() -> None:
    made = Postprocessing(text=CtcConstants(("-", "a", "b")))
    one = [[[0, 1, 0.9], [0, 3, 1]]]
    assert margins(made, one, [[[0, 0.9, 1], [0, 3, 1]]]) == (1, pytest.approx(0.1))
    assert margins(made, one, [[[0, 0, 1], [0, 1, 3]]]) == (1, pytest.approx(2.0))


def test_a_detection_that_only_one_model_has() -> None:
    scores = np.array([[[0.9, 0], [0, 0], [0.52, 0]]])
    lower = np.array([[[0.9, 0], [0, 0], [0.49, 0]]])
    given = {"boxes": CORNERS, "scores": scores}, {"boxes": CORNERS, "scores": lower}
    found = compare_results("typical", "boxes", BOXES, *given)
    assert (found.rows, found.differing, found.margin) == (1, 1, pytest.approx(0.02))
    elsewhere = {"boxes": CORNERS + np.array([0, 0, 500, 500]), "scores": scores}
    moved = compare_results("typical", "boxes", BOXES, given[0], elsewhere)
    assert moved.differing == 1
    assert moved.margin > 0.01

"""Sets of rows match in any order; a row at the threshold may differ, a confident one may not."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.protocol.contract import Axis, Contract, DataAxis, TensorSpec
from convkit.protocol.metrics.limits import is_same, is_within, problems
from convkit.worker.metrics.row_sets import compare_outputs, largest_output_difference

DETECTIONS = DataAxis("detections", 100, boxes="boxes", scores="scores", threshold=0.5)
OUTPUTS = (
    TensorSpec("boxes", "float32", ("detections", 4)),
    TensorSpec("scores", "float32", ("detections",)),
    TensorSpec("classes", "int64", ("detections",)),
)
LIMITS = {"max_abs": 1e-3}


def contract(axis=DETECTIONS, outputs=OUTPUTS):
    return Contract((), outputs, (Axis("batch", 1, 2, 3),), (axis,))


def detections(*rows):
    """Return outputs from rows of x, score and class: boxes of 10 by 10 at that x."""
    return {
        "boxes": np.array([[x, 0, x + 10, 10] for x, _, _ in rows], np.float32).reshape(-1, 4),
        "scores": np.array([score for _, score, _ in rows], np.float32),
        "classes": np.array([label for _, _, label in rows], np.int64),
    }


def compared(reference, candidate, axis=DETECTIONS, outputs=OUTPUTS):
    found = compare_outputs(contract(axis, outputs), reference, candidate)
    return {metrics.output: metrics for metrics in found}


def failures(reference, candidate, axis=DETECTIONS):
    return [
        problem
        for metrics in compared(reference, candidate, axis).values()
        for problem in problems(metrics, LIMITS)
    ]


THREE = detections((0, 0.9, 1), (50, 0.8, 2), (90, 0.7, 1))


def test_rows_at_equal_scores_may_be_in_any_order():
    tied = detections((0, 0.9, 1), (50, 0.8, 2), (90, 0.8, 1))
    swapped = detections((0, 0.9, 1), (90, 0.8, 1), (50, 0.8, 2))
    assert failures(tied, swapped) == []
    assert largest_output_difference(contract(), tied, swapped) == 0.0


def test_rows_that_are_no_longer_in_order_of_score_are_reported():
    other = detections((90, 0.7, 1), (50, 0.8, 2), (0, 0.9, 1))
    (problem,) = failures(THREE, other)
    assert problem.kind == "rows"
    assert "a later score is 0.2 higher" in problem.message


EVERY_ROW = dataclasses.replace(DETECTIONS, threshold=None)


@pytest.mark.parametrize(
    ("rows", "axis", "message"),
    [
        (
            ((0, 0.9, 1), (90, 0.7, 1)),
            DETECTIONS,
            "row 1 is missing, with score 0.8, 0.3 from the threshold",
        ),
        (
            ((0, 0.9, 1), (50, 0.8, 2), (70, 0.75, 3), (90, 0.7, 1)),
            DETECTIONS,
            "row 2 is additional, with score 0.75",
        ),
        (((0, 0.9, 1), (50, 0.8, 2)), EVERY_ROW, "row 2 is missing, with score 0.7"),
    ],
    ids=["missing", "additional", "without a threshold"],
)
def test_a_confident_row_on_one_side_is_reported_with_its_score(rows, axis, message):
    (problem,) = failures(THREE, detections(*rows), axis)
    assert problem.kind == "rows"
    assert message in problem.message


@pytest.mark.parametrize(("score", "fails"), [(0.5005, False), (0.502, True)])
def test_a_row_at_the_threshold_may_be_on_either_side(score, fails):
    with_it = detections((0, 0.9, 1), (50, score, 2))
    without = detections((0, 0.9, 1))
    assert bool(failures(with_it, without)) == fails
    assert bool(failures(without, with_it)) == fails


def test_a_limit_in_parts_of_the_scores_bounds_the_distance_too():
    found = compared(detections((0, 0.9, 1), (50, 0.504, 2)), detections((0, 0.9, 1)))["scores"]
    assert is_within(found, {"nrmse": 0.01})  # of 0.9
    assert not is_within(found, {"nrmse": 0.001})
    assert not is_within(found, {"cosine": 0.9})


def test_a_full_set_ends_at_its_lowest_score():
    axis = dataclasses.replace(DETECTIONS, max=2)
    ours, theirs = (detections((0, 0.9, 1), (x, score, 2)) for x, score in ((50, 0.8), (90, 0.8)))
    assert failures(ours, theirs, axis) == []
    worse = detections((0, 0.9, 1), (90, 0.7, 2))
    assert {problem.kind for problem in failures(ours, worse, axis)} == {"rows"}


def test_errors_are_measured_on_the_rows_that_belong_together():
    moved = {name: np.flip(values, 0).copy() for name, values in THREE.items()}
    moved["boxes"][0, 0] += 0.25  # of the row that is last in the original
    found = compared(THREE, moved)
    assert found["boxes"].max_abs == 0.25
    assert found["boxes"].worst_index == (2, 0)
    assert found["classes"].agreement == 1.0


def test_another_label_is_an_error_of_the_label():
    other = detections((0, 0.9, 1), (50, 0.8, 7), (90, 0.7, 1))
    found = compared(THREE, other)
    assert found["scores"].rows.is_complete
    assert found["classes"].agreement == pytest.approx(2 / 3)


def test_two_empty_sets_are_equal_and_an_empty_one_lacks_every_row():
    nothing = detections()
    assert failures(nothing, nothing) == []
    assert all(map(is_same, compared(nothing, nothing).values()))
    (problem,) = failures(THREE, nothing)
    assert problem.message.startswith("0 rows; the original has 3, 0 match")


def test_nan_in_a_row_is_never_within_a_limit():
    broken = {name: values.copy() for name, values in THREE.items()}
    broken["boxes"][1, 2] = math.nan
    found = failures(THREE, broken)
    assert found
    assert found[0].kind == "rows"
    assert found[0].found == math.inf


def test_boxes_by_center_overlap_too():
    axis = dataclasses.replace(DETECTIONS, box_format="center")
    ours = {"boxes": np.array([[5, 5, 10, 10], [55, 5, 10, 10]], np.float32)}
    theirs = {"boxes": np.array([[55.5, 5, 10, 10], [5, 5, 10, 10]], np.float32)}
    (found,) = compare_outputs(contract(axis, OUTPUTS[:1]), ours, theirs)
    assert found.rows.is_complete
    assert found.max_abs == 0.5


def test_indices_belong_together_if_they_are_equal():
    indices = (TensorSpec("places", "int64", (2, "hits")),)
    ours = {"places": np.array([[0, 0, 4], [1, 2, 3]])}
    theirs = {"places": np.array([[0, 0], [1, 3]])}  # (0, 3) is near (0, 2), but another place
    (found,) = compare_outputs(contract(DataAxis("hits", 9), indices), ours, theirs)
    kinds = [(row.kind, row.index) for row in found.rows.unmatched]
    assert sorted(kinds) == [("additional", (1,)), ("missing", (1,)), ("missing", (2,))]
    assert not is_within(found, {"max_abs": 1e9})


def test_rows_with_indices_and_scores_are_matched_by_the_output_that_is_named():
    outputs = (
        TensorSpec("selected", "int64", ("kept", 3)),
        TensorSpec("scores", "float32", ("kept",)),
    )
    axis = DataAxis("kept", 9, equal="selected", scores="scores", threshold=0.3)
    ours = {"selected": np.array([[0, 1, 5], [0, 1, 7]]), "scores": np.float32([0.9, 0.3001])}
    theirs = {"selected": np.array([[0, 1, 5], [0, 1, 8]]), "scores": np.float32([0.9, 0.3002])}
    found = compared(ours, theirs, axis, outputs)
    assert found["scores"].rows.matched == 1
    assert is_within(found["scores"], LIMITS)
    assert not is_within(found["scores"], {"max_abs": 1e-5})


def test_each_row_of_a_batch_has_a_set_of_its_own():
    outputs = (TensorSpec("boxes", "float32", ("batch", "detections", 4)),)
    axis = dataclasses.replace(DETECTIONS, scores=None, threshold=None)
    first = np.float32([[[0, 0, 9, 9], [50, 0, 60, 9]], [[0, 0, 9, 9], [80, 0, 90, 9]]])
    within = first[:, ::-1].copy()
    within[1, 0, 3] += 0.5
    found = compared({"boxes": first}, {"boxes": within}, axis, outputs)["boxes"]
    assert found.rows.is_complete
    assert found.worst_index == (1, 1, 3)
    across = first.copy()
    across[[0, 1], 1] = across[[1, 0], 1]
    found = compared({"boxes": first}, {"boxes": across}, axis, outputs)["boxes"]
    assert found.rows.matched == 2
    assert {row.index for row in found.rows.unmatched} == {(0, 1), (1, 1)}


def test_outputs_that_disagree_about_their_number_of_rows_are_compared_as_they_are():
    torn = {**THREE, "scores": THREE["scores"][:2]}
    found = compared(THREE, torn)
    assert found["scores"].mismatch_kind == "shape"
    assert found["boxes"].rows is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30, unique=True), st.randoms())
def test_any_order_of_the_same_rows_is_the_same_set(places, random):
    rows = [(20 * place, 0.6 + place / 200, place % 3) for place in places]
    shuffled = random.sample(rows, len(rows))
    for axis in (DETECTIONS, dataclasses.replace(DETECTIONS, boxes=None)):
        found = compared(detections(*rows), detections(*shuffled), axis)
        assert all(metrics.rows.is_complete for metrics in found.values())
        assert max(metrics.max_abs for metrics in found.values()) == 0.0
        lacking = compared(detections(*rows), detections(*shuffled[1:]), axis)
        assert lacking["scores"].rows.matched == len(rows) - 1

"""Which outputs an axis that comes from data is taken to count boxes and scores of."""

from convkit.protocol.contract import TensorSpec
from convkit.worker.survey.sizes.rows_from_data import _axis


def test_outputs_are_taken_for_boxes_and_scores_by_shape_and_name() -> None:
    boxes = TensorSpec("boxes", "float32", (7, 4))
    scores = TensorSpec("scores", "float32", (7, 1))
    found = _axis("detections", 9, [(boxes, 0), (scores, 0)])
    assert (found.boxes, found.scores) == ("boxes", "scores")


def test_a_single_number_is_no_box() -> None:
    found = _axis("count", 9, [(TensorSpec("boxes", "float32", ()), 0)])
    assert found.boxes is None

"""Mean average precision of boxes, with values worked out by hand."""

import dataclasses
import json
import math

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Evaluation
from convkit.protocol.postprocessing_constants import BoxConstants, Postprocessing
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.evaluate.task_runs import run_rows, score_built
from convkit.worker.evaluate.task_scores import scorer_of
from convkit.worker.job_context import UnfitDataError

CONSTANTS = Postprocessing(
    boxes=BoxConstants("logits", ("cat", "dog"), activation="none", format="corners")
)
CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 4)),),
    (
        TensorSpec("boxes", "float32", ("batch", 1, 4), postprocess=CONSTANTS),
        TensorSpec("logits", "float32", ("batch", 1, 2)),
    ),
    (Axis("batch", 1, 2, 4),),
)
BOX = [0.0, 0.0, 10.0, 10.0]
CAT = [{"box": BOX, "label": "cat"}]


def found(*boxes, label=0):
    """Detections of one image, [n, 6], the first with the best score."""
    return np.array([[*box, 0.9 - 0.1 * n, label] for n, box in enumerate(boxes)]).reshape(-1, 6)


@pytest.mark.parametrize(
    ("decided", "labels", "score"),
    [
        pytest.param([found(BOX), found(BOX)], [CAT, CAT], 1.0, id="all-found"),
        # Half of the objects are found: of 101 points of recall, 51.
        pytest.param([found(BOX), found()], [CAT, CAT], 51 / 101, id="one-missed"),
        pytest.param([found(BOX, label=1)], [CAT], 0.0, id="another-label"),
        # The overlap is 0.62, which counts for 3 of the 10 thresholds.
        pytest.param([found([0, 0, 10, 6.2])], [CAT], 0.3, id="moved"),
        # The better score is wrong: the precision is a half.
        pytest.param([found([50, 50, 60, 60], BOX)], [CAT], 0.5, id="a-false-one-first"),
        pytest.param([found(BOX), found(BOX, label=1)], [CAT, [{"box": BOX, "label": 1}]], 1.0,
                     id="labels-by-name-and-number"),
        pytest.param([found()], [[]], math.nan, id="no-objects-at-all"),
    ],
)  # fmt: skip
def test_it_is_coco_s(decided, labels, score):
    scorer = scorer_of(Evaluation("rows.jsonl", "map", "boxes", {}, (), "objects"), CONSTANTS)
    assert scorer.score(decided, labels) == pytest.approx(score, nan_ok=True)


def test_a_resample_may_have_an_image_twice():
    scorer = scorer_of(Evaluation("rows.jsonl", "map", "boxes", {}, (), "objects"), CONSTANTS)
    score = scorer.scores([found(BOX), found()], [CAT, CAT])
    assert [score(rows) for rows in ([0, 0], [1, 1], [1, 0])] == pytest.approx([1, 0, 51 / 101])


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ([{"box": [0, 0, 1], "label": 0}], "row 1: not enough values"),
        ([{"box": [5, 0, 1, 1], "label": 0}], "row 1: a box ends before it begins"),
        ([{"box": BOX, "label": "bird"}], "row 1: 'bird' is not a label of postprocess"),
        ([{"box": BOX}], "row 1: 'label'"),
        (3, "row 1: 'int' object is not iterable"),
    ],
)
def test_a_label_that_is_no_list_of_objects_is_refused_with_its_row(label, says):
    scorer = scorer_of(Evaluation("rows.jsonl", "map", "boxes", {}, (), "objects"), CONSTANTS)
    with pytest.raises(UnfitDataError, match=says):
        scorer.score([found(BOX)], [label])


def original(feeds):
    """One box for each image, and a score below the threshold, which counts all the same."""
    scores = np.tile(np.float32([0.4, 0.0]), (len(feeds["x"]), 1, 1))
    return {"boxes": feeds["x"][:, None], "logits": scores}


def test_rows_run_through_both_models(tmp_path):
    rows = [{"x": [0, 0, 10 + n, 10], "objects": [{"box": [0, 0, 10 + n, 10], "label": "cat"}]}
            for n in range(6)]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = Evaluation(str(tmp_path / "rows.jsonl"), "map", "boxes", {"x": "x"}, (), "objects")
    run_rows(asked, CaseInputs(CONTRACT, {}, 0, ModelFacts()), None, original, tmp_path)

    def shrunk(feeds):
        made = original(feeds)
        return made | {"boxes": made["boxes"] * np.float32([1, 1, 1, 0.5])}

    def score(built):
        return score_built(asked, CONTRACT, built, tmp_path, lambda *_: None)

    same = score(original)
    assert (same.rows, same.original, same.candidate, same.disagreed) == (6, 1.0, 1.0, 0)
    wrong = score(shrunk)
    assert wrong.candidate == pytest.approx(0.1)
    assert wrong.low == pytest.approx(0.9 - (1 - 0.025 ** (1 / 6)))  # all of six rows differ
    broken = score(lambda feeds: {**original(feeds), "logits": original(feeds)["logits"] * np.nan})
    assert broken.error == "logits has NaN"
    other = dataclasses.replace(asked, labels="x")
    with pytest.raises(UnfitDataError, match="row 1"):
        score_built(other, CONTRACT, original, tmp_path, lambda *_: None)

"""Which limits apply to a target: the nearest that were written, and those of its precision."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.keys.tolerances import decided_by, limits_for, tolerance_of
from convkit.host.recipe.reading.loading import load_recipe
from convkit.protocol.errors import RecipeError

KEYS: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "model": {"factory": "model.py:build"},
    "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": ["batch", 4]},
        {"name": "z", "dtype": "float32", "shape": ["batch", 4]},
        {"name": "label", "dtype": "int64", "shape": ["batch"]},
    ],
    "targets": {
        "float32": {"runtime": "onnxruntime"},
        "float16": {"runtime": "onnxruntime", "precision": "float16"},
        "int8": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}},
        "own": {"runtime": "onnxruntime", "tolerance": {"max_abs": 3.0}},
    },
}
MEASURED = {"float32": {"tolerance": {"max_abs": 2.0}, "outputs": {"z": {"max_abs": 5.0}}}}


def recipe(folder: Path, **verify: object) -> Recipe:
    (folder / "model.py").write_text("def build(): ...\n")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(KEYS | {"verify": verify}))
    return load_recipe(path).recipe


def limits(made: Recipe, target: str, output: str) -> dict[str, float]:
    return limits_for(made, made.targets[target], output, None)


def test_limits_of_one_precision_hold_for_it_alone(tmp_path: Path) -> None:
    made = recipe(tmp_path, by_precision=MEASURED)
    assert limits(made, "float32", "y") == {"max_abs": 2.0}
    assert limits(made, "float32", "z") == {"max_abs": 5.0}
    assert limits(made, "float16", "z") == {"nrmse": 0.0098}
    assert limits(made, "int8", "z") == {"nrmse": 0.2}


def test_labels_follow_scores_in_low_precision_unless_limits_are_written(tmp_path: Path) -> None:
    made = recipe(tmp_path)
    assert limits(made, "float32", "label") == limits(made, "own", "label") == {"agreement": 1.0}
    assert limits(made, "int8", "label") == {"agreement": 1.0, "by_scores": 0.5}
    written = recipe(tmp_path, tolerance={"agreement": 0.9})
    assert limits(written, "int8", "label") == {"agreement": 0.9}


def test_what_is_written_for_all_precisions_still_reaches_the_others(tmp_path: Path) -> None:
    made = recipe(tmp_path, by_precision=MEASURED, tolerance={"max_abs": 7.0})
    assert limits(made, "float32", "y") == {"max_abs": 2.0}
    assert limits(made, "float16", "y") == {"max_abs": 7.0}


def test_a_remedy_for_one_output_and_a_target_s_own_are_nearer(tmp_path: Path) -> None:
    made = recipe(tmp_path, by_precision=MEASURED, outputs={"z": {"max_abs": 9.0}})
    assert limits(made, "float32", "z") == {"max_abs": 9.0}
    assert limits(made, "own", "y") == {"max_abs": 3.0}
    place = tolerance_of(made, made.targets["float32"], "y", None).place
    assert place == "verify.by_precision.float32.tolerance"


def test_with_a_task_metric_they_count_for_their_precision(tmp_path: Path) -> None:
    evaluate = {"data": "rows.csv", "metric": {"name": "accuracy"}}
    made = recipe(tmp_path, by_precision=MEASURED)
    asked = made.model_copy(update={"evaluate": evaluate})
    assert decided_by(asked, made.targets["float32"]) == "tolerance and task metric"
    assert decided_by(asked, made.targets["int8"]) == "task metric"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"float8": {}}, r"by_precision\.float8"),
        ({"int8": {"outputs": {"w": {"max_abs": 1.0}}}}, "is not an output"),
    ],
)
def test_what_cannot_apply_is_refused(tmp_path: Path, given: object, says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        recipe(tmp_path, by_precision=given)

"""`bench:`, `goals:` and `evaluate:` in a recipe: what they mean, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.host.recipe.keys.bench import Goals
from convkit.host.recipe.keys.evaluation import predicted_tokens
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.errors import RecipeError

RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "model": {"config": {"architecture": "bert"}},
    "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 2]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}
TASK = {"data": "a.npz", "metric": "accuracy", "max_drop": 0.1, "inputs": {"x": "c"}, "labels": "l"}
PERPLEXITY = {"data": "a.npz", "metric": "perplexity", "max_rise": 0.1, "inputs": {"x": "c"}}
WRITTEN = PERPLEXITY | {"metric": "wer", "labels": "l", "generate": 2}
AXIS = {"min": 1, "typical": 2, "max": 4}
LANGUAGE_MODEL: dict[str, Any] = {
    "axes": {"batch": AXIS, "sequence": AXIS, "past": AXIS | {"min": 0}},
    "inputs": [
        {"name": "x", "dtype": "int64", "shape": ["batch", "sequence"], "sample": "token_ids"},
        {"name": "past", "dtype": "float32", "shape": ["batch", "past", 2]},
    ],
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 9]},
        {"name": "present", "dtype": "float32", "shape": ["batch", "past + sequence", 2]},
    ],
    "steps": {"feeds": {"present": "past"}, "axis": "sequence"},
    "evaluate": PERPLEXITY,
}


class _Plain(yaml.SafeDumper):
    """Writes a value out in each place."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def problems(tmp_path: Path, **changes: Any) -> str:
    (tmp_path / "a.npz").touch()
    with pytest.raises(RecipeError) as caught:
        parse_recipe(yaml.dump(RECIPE | changes, Dumper=_Plain), tmp_path / "recipe.yaml")
    return str(caught.value)


def test_goals_are_ratios_to_the_original() -> None:
    goals = Goals.model_validate(
        {"latency": {"p50": "<= 0.8x original", "p99": "<=1x original"}, "size": "<= 0.5x original"}
    )
    assert goals.limits() == {"p50": 0.8, "p99": 1.0, "size": 0.5}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"goals": {"size": "0.5"}}, 'such as "<= 0.8x original"'),
        ({"goals": {"latency": {}}}, "has no goal"),
        ({"goals": {"speed": "<= 1x original"}}, "speed"),
        ({"bench": {"sizes": [{"batsh": 2}]}}, "perhaps you meant 'batch'"),
        ({"bench": {"sizes": [{"batch": 9}]}}, "the axis ranges from 1 to 4"),
        ({"bench": {"sizes": []}}, "sizes"),
        ({"bench": {"threads": 0}}, "threads"),
        ({"evaluate": TASK | {"data": "a.txt"}}, ".npz, .jsonl, .csv, .parquet or .arrow"),
        ({"evaluate": TASK | {"data": "b.npz"}}, "perhaps you meant 'a.npz'"),
        ({"evaluate": TASK | {"texts": ["c"]}}, "either inputs: or texts:"),
        ({"evaluate": TASK | {"inputs": {"z": "c"}}}, "is not an input"),
        ({"evaluate": TASK | {"output": "z"}}, "is not an output"),
        ({"evaluate": TASK | {"labels": None}}, "labels"),
        ({"evaluate": TASK | {"metric": "own.py:score"}}, "own.py"),
        ({"evaluate": TASK | {"metric": "bleu"}}, "metric"),
        ({"evaluate": TASK | {"metric": "recall@0"}}, "metric"),
        ({"evaluate": TASK | {"metric": "wer"}}, "wer needs max_rise"),
        (
            {"evaluate": TASK | {"metric": "wer", "max_drop": None, "max_rise": 0.1}},
            "wer compares texts, and the output y is not read as such",
        ),
        ({"evaluate": TASK | {"max_drop": -1.0}}, "max_drop"),
        ({"evaluate": TASK | {"max_drop": None}}, "accuracy needs max_drop"),
        ({"evaluate": TASK | {"max_rise": 0.1}}, "does not apply to accuracy; write max_drop"),
        ({"evaluate": PERPLEXITY | {"labels": "l"}}, "perplexity predicts the tokens"),
        ({"evaluate": PERPLEXITY | {"max_drop": 0.1}}, "does not apply to perplexity"),
        ({"evaluate": PERPLEXITY}, "needs scores of the shape [rows, positions, tokens]"),
        (LANGUAGE_MODEL | {"axes": LANGUAGE_MODEL["axes"] | {"past": AXIS}}, "axes.past.min is 1"),
        ({"evaluate": TASK | {"generate": 2}}, "does not apply to accuracy; wer reads texts"),
        ({"evaluate": WRITTEN}, "generate needs scores of the shape"),
        (LANGUAGE_MODEL | {"evaluate": WRITTEN | {"generate": 4}}, "more than axes.sequence.max"),
        (
            LANGUAGE_MODEL | {"evaluate": WRITTEN | {"inputs": {}, "texts": ["c"]}},
            "add an input with sample: padding_mask",
        ),
        (
            LANGUAGE_MODEL | {"evaluate": WRITTEN | {"inputs": {}, "texts": ["c", "d"]}},
            "generate needs exactly one column of texts",
        ),
        ({"evaluate": TASK | {"texts": ["c", "d"], "inputs": {}}}, "accuracy needs exactly one"),
        (
            LANGUAGE_MODEL | {"targets": {"ort": {"runtime": "onnxruntime", "max_drop": 0.1}}},
            "does not apply to perplexity; write max_rise",
        ),
        ({"targets": {"ort": {"runtime": "onnxruntime", "max_drop": 0.1}}}, "a top-level evaluate"),
        (
            {
                "evaluate": TASK,
                "targets": {
                    "ort": {
                        "runtime": "onnxruntime",
                        "precision": {"default": "float16", "keep_float32": "auto"},
                    }
                },
            },
            "auto searches by a tolerance",
        ),
    ],
)
def test_mistakes_are_named_with_what_to_write(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    assert told in problems(tmp_path, **changes)


def test_texts_that_search_need_no_labels(tmp_path: Path) -> None:
    (tmp_path / "a.npz").touch()
    searching = TASK | {"metric": "recall@3", "texts": ["c", "d"], "inputs": {}, "labels": None}
    recipe = yaml.dump(RECIPE | {"evaluate": searching}, Dumper=_Plain)
    evaluate = parse_recipe(recipe, tmp_path / "recipe.yaml").recipe.evaluate
    assert evaluate is not None
    assert evaluate.retrieves


def test_perplexity_predicts_the_tokens_along_the_second_axis_of_the_scores() -> None:
    assert predicted_tokens(RECIPE | LANGUAGE_MODEL) == "x"
    assert predicted_tokens(RECIPE | LANGUAGE_MODEL, "present") is None
    assert predicted_tokens(RECIPE) is None


def test_a_folder_of_rows_ends_in_a_slash_and_has_a_folder_for_each_class(tmp_path: Path) -> None:
    def found(data: str) -> str:
        return problems(tmp_path, evaluate=TASK | {"data": data})

    (tmp_path / "photos").mkdir()
    assert "or a folder of images, which ends in /" in found("photos")
    assert "'photos/' contains no folders; put the images of each class in" in found("photos/")
    assert "found no folder 'photo/'" in found("photo/")
    (tmp_path / "file").touch()
    assert "'file/' is a file; remove the slash at its end" in found("file/")

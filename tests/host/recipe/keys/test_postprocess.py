"""`postprocess` of an output: what recipes can write, and the errors for what they cannot."""

import json
from pathlib import Path
from typing import Any

import pytest

from convkit.host.plan.stage_requests import named_files
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.protocol.errors import RecipeError
from convkit.protocol.postprocessing_constants import BoxConstants, CtcConstants, LabelConstants

FACTORY = {"factory": {"call": "model.py:build"}}
SCORES = {"name": "logits", "dtype": "float32", "shape": ["batch", 12, 3]}
BOXES = {"name": "boxes", "dtype": "float32", "shape": ["batch", 12, 4]}


def loaded(folder: Path, outputs: list[dict[str, Any]]) -> LoadedRecipe:
    (folder / "model.py").write_text("def build(): ...\n")
    content = {
        "schema": 1,
        "name": "small",
        "model": FACTORY,
        "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
        "outputs": outputs,
        "targets": {"cpu": {"runtime": "onnxruntime"}},
    }
    return parse_recipe(json.dumps(content), folder / "recipe.yaml")


def problems(folder: Path, outputs: list[dict[str, Any]]) -> str:
    with pytest.raises(RecipeError) as caught:
        loaded(folder, outputs)
    return str(caught.value)


def test_the_constants_become_part_of_the_contract(tmp_path: Path) -> None:
    recipe = loaded(
        tmp_path,
        [
            SCORES | {"postprocess": {"labels": {"names": ["a", "b", "c"]}}},
            BOXES | {"postprocess": {"boxes": {"scores": "logits", "overlap": 0.5}}},
            {"name": "text", "dtype": "float32", "shape": ["batch", "batch", 3]}
            | {"postprocess": {"text": {"symbols": ["", "x", "|"], "space": "|"}}},
        ],
    ).recipe
    found = [each.postprocess for each in contract_of(recipe).outputs]
    assert [each.labels or each.boxes or each.text for each in found if each] == [
        LabelConstants(("a", "b", "c")),
        BoxConstants("logits", overlap=0.5),
        CtcConstants(("", "x", "|"), space="|"),
    ]


def test_names_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("one\ntwo\nthree\n")
    outputs = [SCORES | {"postprocess": {"labels": {"file": "labels.txt"}}}]
    recipe = loaded(tmp_path, outputs).recipe
    [spec] = contract_of(recipe).outputs
    assert spec.postprocess is not None
    assert spec.postprocess.labels == LabelConstants(("one", "two", "three"))
    assert named_files(recipe) == ("labels.txt",)


def test_the_names_of_a_parts_output_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def build(): ...\n")
    (tmp_path / "labels.txt").write_text("one\ntwo\nthree\n")
    inputs = [{"name": "x", "dtype": "float32", "shape": [2, 4]}]
    scores = {"name": "logits", "dtype": "float32", "shape": [2, 3]}
    made = scores | {"postprocess": {"labels": {"file": "labels.txt"}}}
    content = {
        "schema": 1,
        "name": "small",
        "parts": {"head": {"model": FACTORY, "inputs": inputs, "outputs": [made]}},
        "join": [{"call": "head"}],
        "inputs": inputs,
        "outputs": [scores],
        "targets": {"cpu": {"runtime": "onnxruntime"}},
    }
    recipe = parse_recipe(json.dumps(content), tmp_path / "recipe.yaml").recipe
    [spec] = contract_of(recipe.part("head")).outputs
    assert spec.postprocess is not None
    assert spec.postprocess.labels == LabelConstants(("one", "two", "three"))


@pytest.mark.parametrize(
    ("postprocess", "says"),
    [
        ({}, "write one of labels, boxes, text"),
        ({"labels": {}, "text": {"symbols": ["a"]}}, "found labels and text"),
        ({"labels": {"names": ["a", "b"]}}, "has 2 names for 3 scores"),
        ({"labels": {"file": "none.txt"}}, "found no file 'none.txt'"),
        ({"labels": {"file": "empty.txt"}}, "contains no names"),
        ({"labels": {"names": ["a", "b", "c"], "file": "labels.txt"}}, "not both"),
        ({"labels": {}, "processor": {"file": "labels.txt"}}, "write call: file.py:function"),
        ({"labels": {}, "processor": {"call": "model.py:none"}}, "does not define 'none'"),
        ({"labels": {"treshold": 0.5}}, "threshold"),
        ({"boxes": {"scores": "logits"}}, "must be [batch, rows, 4]"),
        ({"text": {}}, "declares no symbols"),
        ({"labels": {}, "agreement": 0}, "agreement"),
    ],
)
def test_what_cannot_be_written_is_explained(
    postprocess: dict[str, Any], says: str, tmp_path: Path
) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "labels.txt").write_text("one\ntwo\nthree\n")
    assert says in problems(tmp_path, [SCORES | {"postprocess": postprocess}])


@pytest.mark.parametrize(
    ("boxes", "says"),
    [
        ({"scores": "logit"}, "'logit' is not an output; perhaps you meant 'logits'"),
        ({"scores": "few"}, "'few' must be [batch, 12, labels]"),
        ({"scores": "logits", "names": ["a", "b", "c"], "no_object": True}, "3 names for 2"),
        ({"scores": "logits", "format": "centre"}, "format"),
    ],
)
def test_boxes_need_scores_of_their_rows(boxes: dict[str, Any], says: str, tmp_path: Path) -> None:
    few = SCORES | {"name": "few", "shape": ["batch", 11, 3]}
    made = BOXES | {"postprocess": {"boxes": boxes}}
    assert says in problems(tmp_path, [made, SCORES, few])


def test_whole_numbers_have_no_scores(tmp_path: Path) -> None:
    made = SCORES | {"dtype": "int64", "postprocess": {"labels": {}}}
    assert "labels are computed from floats" in problems(tmp_path, [made])

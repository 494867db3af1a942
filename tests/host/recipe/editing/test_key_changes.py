"""Changes to a recipe's values by key path."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.recipe.editing.key_changes import ChangeError, changed, key_path

RECIPE: dict[str, Any] = {
    "export": {"opset": 18},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "length": {"min": 1, "typical": 2, "max": 4},
    },
    "inputs": [
        {"name": "a", "dtype": "int64", "shape": ["batch"], "sample": "token_ids"},
        {"name": "b", "dtype": "int64", "shape": ["batch"]},
    ],
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": ["batch", "length + 1"], "mask": "b"},
        {"name": "z", "dtype": "float32", "shape": ["batch"]},
    ],
    "verify": {"outputs": {"y": {"max_abs": 1.0}}},
    "targets": {
        "ort": {"precision": "float16"},
        "ort-1.31": {
            "precision": "float32",
            "outputs": {"z": {"max_abs": 2.0}, "y": {"max_abs": 3.0}},
        },
    },
}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("export.opset", ("export", "opset")),
        ("export.input_order", ("export", "input_order")),
        ("track.experiment", ("track", "experiment")),
        ("targets.ort-1.31.precision", ("targets", "ort-1.31", "precision")),
        ("targets.ort.precision.saturate", ("targets", "ort", "precision", "saturate")),
        ("inputs.1.dtype", ("inputs", 1, "dtype")),
        ("inputs.7.dtype", ("inputs", 7, "dtype")),
        ("inputs", ("inputs",)),
    ],
)
def test_key_paths(text: str, path: tuple[str | int, ...]) -> None:
    assert key_path(text, RECIPE) == path


def test_a_name_with_a_dot_is_found_by_the_longest_key() -> None:
    assert key_path("a.b.c", {"a": {}, "a.b": {"c": 1}}) == ("a.b", "c")


def test_nothing_given_is_touched() -> None:
    before = copy.deepcopy(RECIPE)
    change = {"export.opset": 17, "inputs": [{"name": "b"}, {"name": "a"}], "outputs.0.name": "w"}
    changed(RECIPE, change)
    assert before == RECIPE


def test_keys_that_are_there_and_keys_that_are_not() -> None:
    result = changed(
        RECIPE, {"export.opset": 17, "export.exporter": "torch", "model.dtype": "float32"}
    )
    assert result["export"] == {"opset": 17, "exporter": "torch"}
    assert result["model"] == {"dtype": "float32"}


def test_a_precision_of_one_word_becomes_a_mapping() -> None:
    result = changed(RECIPE, {"targets.ort.precision.saturate": True})
    assert result["targets"]["ort"]["precision"] == {"default": "float16", "saturate": True}


def test_a_part_gets_its_own_copy_of_what_it_had_from_the_recipe() -> None:
    target = {"runtime": "onnxruntime", "precision": "float16", "max_drop": 0.1}
    tensor = {"name": "x", "dtype": "float32", "shape": ["batch", 3]}
    part = {"model": {"onnx": "one.onnx"}, "inputs": [tensor], "outputs": [tensor | {"name": "y"}]}
    recipe = {
        "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
        "export": {"opset": 18},
        "parts": {"one": part, "other": copy.deepcopy(part)},
        "targets": {"half": target},
    }
    result = changed(
        recipe,
        {
            "parts.one.targets.half.precision.keep_float32": ["head"],
            "parts.one.inputs.0.dtype": "int64",
            "parts.one.export.exporter": "torchscript",
        },
    )
    assert result["parts"]["one"]["targets"]["half"] == {
        "runtime": "onnxruntime",
        "precision": {"default": "float16", "keep_float32": ["head"]},
    }
    assert result["parts"]["one"]["inputs"][0]["dtype"] == "int64"
    assert result["parts"]["one"]["export"] == {"opset": 18, "exporter": "torchscript"}
    assert result["parts"]["other"] == part
    assert result["targets"] == {"half": target}


def test_a_list_is_put_in_another_order_and_keeps_what_it_says() -> None:
    result = changed(RECIPE, {"inputs": [{"name": "b", "dtype": "int32"}, {"name": "a"}]})
    assert result["inputs"] == [
        {"name": "b", "dtype": "int32", "shape": ["batch"]},
        RECIPE["inputs"][0],
    ]


def test_a_list_takes_a_new_tensor_in() -> None:
    new = {"name": "c", "dtype": "int64", "shape": ["batch"], "sample": "positions"}
    result = changed(RECIPE, {"inputs": [{"name": "a"}, new, {"name": "b"}]})
    assert result["inputs"] == [RECIPE["inputs"][0], new, RECIPE["inputs"][1]]


def test_places_mean_the_recipe_as_it_was() -> None:
    order = [{"name": "b"}, {"name": "a"}]
    change = {
        "inputs.0.name": "ids",
        "inputs.0.dtype": "int32",
        "inputs": order,
        "inputs.1.name": "mask",
    }
    result = changed(RECIPE, change)
    assert [(item["name"], item["dtype"]) for item in result["inputs"]] == [
        ("mask", "int64"),
        ("ids", "int32"),
    ]
    assert result == changed(RECIPE, dict(reversed(change.items())))


def test_what_speaks_of_a_renamed_tensor_follows() -> None:
    result = changed(RECIPE, {"inputs.1.name": "mask", "outputs.0.name": "w"})
    assert result["outputs"][0]["mask"] == "mask"
    assert result["verify"]["outputs"] == {"w": {"max_abs": 1.0}}
    assert list(result["targets"]["ort-1.31"]["outputs"]) == ["z", "w"]


def test_exchanged_names_exchange_what_speaks_of_them() -> None:
    result = changed(RECIPE, {"outputs.0.name": "z", "outputs.1.name": "y"})
    assert result["targets"]["ort-1.31"]["outputs"] == {
        "y": {"max_abs": 2.0},
        "z": {"max_abs": 3.0},
    }


def test_an_axis_that_nothing_uses_any_more_goes() -> None:
    result = changed(RECIPE, {"outputs.0.shape": ["batch", 3]})
    assert list(result["axes"]) == ["batch"]
    shapes = {
        "outputs.0.shape": [3],
        "outputs.1.shape": [3],
        "inputs.0.shape": [3],
        "inputs.1.shape": [3],
    }
    assert "axes" not in changed(RECIPE, shapes)
    assert list(changed(RECIPE, {"export.opset": 17})["axes"]) == ["batch", "length"]


@pytest.mark.parametrize(
    "change",
    [
        {"inputs.7.dtype": "int32"},
        {"inputs.x.dtype": "int32"},
        {"inputs.0": {"name": "q"}},
        {"inputs": ["a"]},
        {"inputs": "a"},
        {"inputs.0.dtype": "int32", "inputs": [{"name": "b"}]},
        {"export.opset.more": 1},
        {"outputs.0.shape": ["length +"]},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ChangeError):
        changed(RECIPE, change)


@given(st.permutations(["a", "b"]), st.permutations(["y", "z"]))
def test_an_order_is_undone_by_the_other(inputs: list[str], outputs: list[str]) -> None:
    there = changed(
        RECIPE,
        {
            "inputs": [{"name": name} for name in inputs],
            "outputs": [{"name": name} for name in outputs],
        },
    )
    back = {"inputs": [{"name": "a"}, {"name": "b"}], "outputs": [{"name": "y"}, {"name": "z"}]}
    assert changed(there, back) == RECIPE

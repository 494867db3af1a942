"""The candidates: what is tried of a recipe, under which name, held to which limits."""

import pytest
import yaml
from small_recipe import recipe

from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.record.tune_record import Candidate
from convkit.host.tune.candidate_targets import Space, target_name, thread_counts, with_candidate

TARGETS = {
    "ort": {"runtime": "onnxruntime"},
    "int8": {
        "runtime": "onnxruntime",
        "precision": {"quantize": "dynamic-int8"},
        "tolerance": {"cosine": 0.97},
        "goals": {"size": "<= 0.5x original"},
    },
}


@pytest.fixture
def loaded(tmp_path) -> LoadedRecipe:
    content = recipe().dump() | {"targets": TARGETS}
    return parse_recipe(yaml.safe_dump(content, sort_keys=False), tmp_path / "recipe.yaml")


def test_every_runtime_starts_with_its_precisions_and_none_twice(loaded):
    found = Space(loaded).first()
    assert list(found)[:2] == ["ort", "int8"]
    assert {"onnxruntime-float16", "openvino-float32", "tensorrt-bfloat16"} <= set(found)
    assert "onnxruntime-float32" not in found  # the recipe's own `ort`
    assert "onnxruntime-dynamic-int8" not in found
    assert "coreml-float16" not in found  # cannot be timed


def test_a_candidate_is_held_to_the_limits_of_what_is_most_like_it(loaded):
    found = Space(loaded, ("onnxruntime",)).first()
    limits = {"tolerance": {"cosine": 0.97}, "goals": {"size": "<= 0.5x original"}}
    assert found["onnxruntime-static-int8"].items() >= limits.items()
    assert "tolerance" not in found["onnxruntime-float16"]
    like = Space(loaded, ("onnxruntime",), like="int8").first()
    assert like["onnxruntime-float16"]["tolerance"] == {"cosine": 0.97}


def test_other_runtimes_can_be_left_out(loaded):
    found = Space(loaded, ("openvino",)).first()
    assert {target["runtime"] for target in found.values()} == {"openvino"}


def test_a_failed_precision_is_tried_with_exceptions_once(loaded):
    space = Space(loaded, ("onnxruntime",))
    known = space.first()
    searched = space.searched(known, "onnxruntime-float16")
    assert list(searched) == ["onnxruntime-float16-auto"]
    assert searched["onnxruntime-float16-auto"]["precision"] == {
        "default": "float16",
        "keep_float32": "auto",
    }
    assert space.searched(known | searched, "onnxruntime-float16-auto") == {}
    assert space.searched(known, "ort") == {}


def test_no_exceptions_are_searched_for_below_the_resolution_of_the_type(tmp_path):
    content = recipe().dump() | {"targets": {"ort": TARGETS["ort"]}}
    content["verify"] = {"tolerance": {"max_abs": 1e-5}}
    space = Space(parse_recipe(yaml.safe_dump(content), tmp_path / "recipe.yaml"))
    target = {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}
    why = space.unreachable_limit("int8", target)
    assert why is not None
    assert "1e-05" in why
    assert "far below the resolution of int8" in why
    assert space.unreachable_limit("int8", target | {"tolerance": {"max_abs": 0.001}}) is None
    assert space.unreachable_limit("int8", target | {"tolerance": {"cosine": 0.97}}) is None
    assert space.unreachable_limit("ort", {"runtime": "onnxruntime"}) is None


def test_optimization_goes_down_a_level_at_a_time(loaded):
    space = Space(loaded, ("onnxruntime",))
    first = space.refined(space.first(), "ort")
    assert list(first) == ["onnxruntime-float32-extended", "onnxruntime-float32-optimized"]
    second = space.refined(space.first() | first, "onnxruntime-float32-extended")
    assert "onnxruntime-float32-basic" in second


def test_what_the_recipe_cannot_have_is_refused_with_the_reason(loaded):
    space = Space(loaded)
    assert space.refusal("x", {"runtime": "openvino", "precision": {"quantize": "int4-weights"}})
    assert "onnxruntime's" in str(
        space.refusal("x", {"runtime": "tensorrt", "precision": {"quantize": "dynamic-int8"}})
    )
    assert space.refusal("x", {"runtime": "onnxruntime"}) is None


def test_its_runs_are_not_the_recipes(loaded):
    assert Space(loaded).recipe({"ort": TARGETS["ort"]}).recipe.name == "small-tune"


def test_names_say_what_differs():
    cuda = {"runtime": "onnxruntime", "device": "cuda", "precision": "float16"}
    assert target_name(cuda) == "onnxruntime-float16-cuda"
    none = {"runtime": "onnxruntime", "optimization": "none"}
    assert target_name(none) == "onnxruntime-float32-no-optimization"
    level = {"runtime": "tensorrt", "builder_level": 5}
    assert target_name(level) == "tensorrt-float32-builder-level"


def test_other_numbers_of_threads_are_one_and_half():
    assert list(thread_counts(8)) == [1, 4]
    assert list(thread_counts(2)) == [1]
    assert list(thread_counts(1)) == []


def test_a_candidate_becomes_a_target_and_its_own_stays(loaded):
    new = {"runtime": "onnxruntime", "precision": "float16", "tolerance": {"max_abs": 0.01}}
    text = with_candidate(loaded, Candidate("fast", new, "frontier"))
    assert yaml.safe_load(text)["targets"] == {**TARGETS, "fast": new}
    assert with_candidate(loaded, Candidate("int8", TARGETS["int8"], "frontier")) == loaded.text

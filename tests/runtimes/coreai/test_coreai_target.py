"""What a recipe may ask of Core AI, and which packages that needs."""

import pytest
from pydantic import ValidationError

from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.draft.target_names import asked_targets
from convkit.host.recipe.keys.target_models import target_models
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.runtimes.coreai.module_conversion import narrowed_types
from convkit.runtimes.coreai.target import CoreAITarget

RECIPE = {"model": {"factory": "net.py:M"}, "axes": {"length": {"min": 1, "typical": 4, "max": 8}}}


def faults(target, recipe=RECIPE):
    return {
        ".".join(map(str, fault.path)): fault.message
        for fault in CoreAITarget.faults("ai", target, recipe)
    }


def test_a_draft_has_both_precisions_and_compressed_weights():
    assert asked_targets(["coreai", "coreai-float16", "coreai-int4"]) == {
        "coreai-int4": {
            "runtime": "coreai",
            "precision": "float16",
            "compression": {"weights": "int4"},
        },
        "coreai": {"runtime": "coreai", "precision": "float32"},
        "coreai-float16": {
            "runtime": "coreai",
            "precision": {"default": "float16", "keep_float32": "auto"},
        },
    }


def test_running_a_file_needs_no_torch():
    target = CoreAITarget.model_validate({"runtime": "coreai"})
    assert target.packages("verify", stand_in=False) == ("coreai-core", "numpy")
    assert {"coreai-torch", "torch"} < set(target.packages("build", stand_in=False))


def test_only_a_build_that_compresses_needs_coreai_opt():
    target = CoreAITarget.model_validate({"runtime": "coreai", "compression": {"weights": "int8"}})
    needed = {each: target.packages(each, stand_in=False) for each in ("build", "verify")}
    assert ("coreai-opt" in needed["build"], "coreai-opt" in needed["verify"]) == (True, False)
    plain = CoreAITarget.model_validate({"runtime": "coreai"})
    assert "coreai-opt" not in plain.packages("build", stand_in=False)


def test_blocks_are_of_int4_weights():
    keys = {"runtime": "coreai", "compression": {"weights": "int8", "block_size": 32}}
    with pytest.raises(ValidationError, match="requires weights: int4"):
        CoreAITarget.model_validate(keys)


def test_states_need_steps_and_one_size():
    assert "add steps" in faults({"states": True})["targets.ai.states"]
    cache = {"name": "past", "dtype": "float32", "shape": [1, "length"]}
    fed = RECIPE | {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1]}, cache],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1]}, cache | {"name": "now"}],
        "steps": {"feeds": {"now": "past"}},
    }
    assert "a state has one size" in faults({"states": True}, fed)["targets.ai.states"]
    cache["shape"] = [1, 8]
    assert faults({"states": True}, fed | {"inputs": [fed["inputs"][0], cache]}) == {}


@pytest.mark.parametrize(
    ("runtime", "asking"), [("coreai", {"coreai"}), ("tensorrt-rtx", {"tensorrt-rtx", "tensorrt"})]
)
def test_recipes_without_such_a_target_fetch_none_of_its_packages(runtime, asking):
    """TensorRT-RTX's parser answers in TensorRT's place."""
    own = set(runtimes()[runtime].tools)
    stages = ("precision", "build", "verify", "bench")
    askers = set()
    for name, model in target_models().items():
        needed = {"file": "theirs.tflite"} if name == "given" else {}
        for variant in [{}, *model.variants()]:
            target = model.model_validate({"runtime": name, **needed, **variant})
            asked = {
                each
                for stage in stages
                for stand_in in (False, True)
                for each in target.packages(stage, stand_in=stand_in)
            }
            if asked & own:
                askers.add(name)
    assert own
    assert askers == asking


@pytest.mark.parametrize("precision", ["bfloat16", {"quantize": "dynamic-int8"}])
def test_other_precisions_say_what_to_write(precision):
    with pytest.raises(ValidationError, match="write"):
        CoreAITarget.model_validate({"runtime": "coreai", "precision": precision})


def test_it_converts_modules_only():
    for kind in ("onnx", "torchscript"):
        found = faults({}, {"model": {kind: "m"}})
        assert "name the torch module" in found["targets.ai.runtime"]
    assert faults({}) == {}


def test_entry_points_have_sizes_that_the_axes_have():
    found = faults({"entry_points": {"main": {}, "one": {"length": 9, "width": 1}}})
    assert "choose another name" in found["targets.ai.entry_points.main"]
    assert "1 to 8" in found["targets.ai.entry_points.one.length"]
    assert "which has length" in found["targets.ai.entry_points.one.width"]
    assert faults({"entry_points": {"one": {"length": 1}}}) == {}


def test_narrowed_types_are_told_by_type():
    from coreai_modules import contract

    (note,) = narrowed_types(contract())
    assert (note.code, note.severity) == ("C304", "note")
    assert note.evidence == {"declared": "int64", "found": "int32", "inputs": ["ids", "mask"]}


def test_a_draft_of_a_decoder_has_an_entry_point_for_single_tokens(tmp_path):
    path = tmp_path / "recipe.yaml"

    def entry_points(task):
        text = draft_recipe("qwen3", destination=path, task=task, targets=["coreai", "onnxruntime"])
        targets = parse_recipe(text, path).recipe.targets
        assert "entry_points" not in targets["onnxruntime"].model_fields_set
        return targets["coreai"].entry_points

    assert entry_points("text-generation") == {"decode": {"sequence": 1}}
    assert entry_points("feature-extraction") == {}

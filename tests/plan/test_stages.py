import dataclasses
from typing import Any

import pytest
from small_recipe import recipe

from convkit.errors import UsageError
from convkit.plan.stages import Facts, Stage, explain_change, flatten, ingredients, plan_stages, stage_key
from convkit.recipe.models import Recipe
from convkit.worker.protocol import StageKind

CODE: dict[StageKind, str] = {"export": "e", "reference": "r", "build": "b", "verify": "v"}
ORT = {"runtime": "onnxruntime"}


def facts(stages: tuple[Stage, ...], **changes: Any) -> Facts:
    packages = {stage.environment: {"torch": "2.13.0", "onnxruntime": "1.31.1"} for stage in stages}
    given = Facts("source", "source", {}, packages, CODE, "linux-x86_64", "some processor", "isolated")
    return dataclasses.replace(given, **changes)


def parts_of(given: Recipe, name: str, **changes: Any) -> dict[str, str]:
    stages = plan_stages(given)
    found = ingredients({stage.id: stage for stage in stages}[name], given, facts(stages, **changes))
    assert found is not None
    return found


def keys(given: Recipe, **changes: Any) -> dict[str, str]:
    stages = plan_stages(given)
    return {
        stage.id: stage_key(stage, parts_of(given, stage.id, **changes), dict.fromkeys(stage.needs, "artifact"))
        for stage in stages
    }


def test_targets_share_the_export_and_the_reference() -> None:
    stages = plan_stages(recipe(targets={"a": ORT, "b": ORT | {"versions": ["==1.21.*", "==1.31.*"]}}))
    assert [stage.id for stage in stages] == [
        "export",
        "reference",
        "build:a",
        "verify:a",
        "build:b",
        "verify:b@==1.21.*",
        "verify:b@==1.31.*",
    ]
    assert stages[-1].needs == ("build:b", "reference")


def test_a_target_with_its_own_export_builds_on_that() -> None:
    stages = plan_stages(recipe(targets={"a": ORT, "b": ORT | {"export": {"exporter": "optimum"}}}))
    by_id = {stage.id: stage for stage in stages}
    assert by_id["build:a"].needs == ("export",)
    assert by_id["build:b"].needs == ("export:b",)
    assert by_id["export:b"].environment != by_id["export"].environment


def test_every_stage_comes_after_what_it_needs() -> None:
    seen: set[str] = set()
    for stage in plan_stages(recipe(targets={"a": ORT, "b": ORT | {"export": {"exporter": "torchscript"}}})):
        assert seen >= set(stage.needs)
        seen.add(stage.id)


def test_only_limits_the_targets_and_refuses_others() -> None:
    given = recipe(targets={"a": ORT, "b": ORT})
    assert {stage.target for stage in plan_stages(given, ("b",))} == {None, "b"}
    with pytest.raises(UsageError, match="targets: a, b"):
        plan_stages(given, ("c",))


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"export": {"opset": 19}}, {"export"}),
        ({"verify": {"tolerance": {"max_abs": 1.0}}}, set()),
        ({"verify": {"tolerance": {"max_abs": 1e-4}, "seed": 1}}, {"export", "reference"}),
        ({"verify": {"tolerance": {"max_abs": 1e-4}, "budget": 5}}, {"reference", "verify:ort"}),
        ({"targets": {"ort": ORT | {"optimization": "basic"}}}, {"build:ort", "verify:ort"}),
        ({"targets": {"ort": ORT | {"tolerance": {"max_abs": 1.0}}}}, set()),
        ({"description": "other words"}, set()),
        ({"model": {"config": {"architecture": "bert", "seed": 1}}}, {"export", "reference"}),
    ],
)
def test_a_change_moves_the_keys_of_the_stages_it_can_change_and_no_others(
    change: dict[str, Any], moved: set[str]
) -> None:
    before, after = keys(recipe()), keys(recipe(**change))
    assert {name for name in before if before[name] != after[name]} == moved


@pytest.mark.parametrize(
    ("change", "moved"),
    [
        ({"source": "other weights"}, {"export", "reference"}),
        ({"original": "other weights"}, set()),
        ({"files": {"samples.npy": "other"}}, {"export", "reference"}),
        ({"worker_code": CODE | {"build": "other"}}, {"build:ort"}),
        ({"platform": "darwin-arm64"}, {"export", "reference", "build:ort", "verify:ort"}),
        ({"processor": "other"}, {"reference", "verify:ort"}),
    ],
)
def test_a_changed_fact_moves_the_keys_of_the_stages_it_can_change(change: dict[str, Any], moved: set[str]) -> None:
    before, after = keys(recipe()), keys(recipe(), **change)
    assert {name for name in before if before[name] != after[name]} == moved


def test_other_texts_do_not_export_again() -> None:
    model = {"package": {"name": "some-model", "version": "1.0", "path": "model"}}
    given = recipe(model=model, verify={"texts": "texts.txt", "tolerance": {"max_abs": 1e-4}})
    before, after = keys(given), keys(given, files={"texts.txt": "other"})
    assert {name for name in before if before[name] != after[name]} == {"reference"}


def test_the_order_of_inputs_is_part_of_the_key() -> None:
    dump = recipe().dump()
    exchanged = recipe(inputs=[dump["inputs"][0], dump["inputs"][2], dump["inputs"][1]])
    assert keys(recipe())["export"] != keys(exchanged)["export"]


def test_another_input_artifact_is_another_key() -> None:
    stage = next(stage for stage in plan_stages(recipe()) if stage.id == "build:ort")
    assert stage_key(stage, {}, {"export": "one"}) != stage_key(stage, {}, {"export": "two"})


def test_two_targets_that_build_the_same_thing_share_a_key() -> None:
    found = keys(recipe(targets={"a": ORT, "b": ORT}))
    assert found["build:a"] == found["build:b"]


def test_unresolved_tools_leave_the_key_unknown() -> None:
    stages = plan_stages(recipe())
    assert ingredients(stages[0], recipe(), facts(stages, packages={})) is None


def test_a_change_is_explained_by_the_recipe_s_key() -> None:
    before, now = parts_of(recipe(), "export"), parts_of(recipe(export={"opset": 19}), "export")
    assert explain_change(now, {}, before, {}) == "export.opset changed: 18 -> 19"
    assert explain_change(now, {"export": "b"}, now, {"export": "a"}) == "export gave another artifact"
    assert explain_change(now, {}, now, {}) == "its artifact is gone from the store"


def test_flatten_keeps_empty_containers_and_tells_them_from_values() -> None:
    assert flatten({"a": {"b": [1, {"c": None}]}, "d": [], "e": {}}) == {
        "a.b.0": "1",
        "a.b.1.c": "None",
        "d": "[]",
        "e": "{}",
    }


def test_a_low_precision_is_verified_beside_the_graph_it_was_made_of() -> None:
    own = {"export": {"exporter": "optimum"}, "precision": "float16"}
    stages = {
        stage.id: stage for stage in plan_stages(recipe(targets={"a": ORT | {"precision": "float16"}, "b": ORT | own}))
    }
    assert stages["verify:a"].needs == ("build:a", "reference", "export")
    assert stages["verify:b"].needs == ("build:b", "reference", "export:b")


@pytest.mark.parametrize(
    "change",
    ["bfloat16", {"default": "float16", "keep_float32": ["encoder"]}, {"default": "float16", "saturate": True}],
)
def test_every_part_of_a_precision_is_in_the_build_s_and_the_verification_s_key(change: object) -> None:
    before = keys(recipe(targets={"a": ORT | {"precision": "float16"}}))
    after = keys(recipe(targets={"a": ORT | {"precision": change}}))
    assert {name for name in before if before[name] != after[name]} == {"build:a", "verify:a"}


def test_float16_is_one_precision_however_it_is_written() -> None:
    plain = keys(recipe(targets={"a": ORT | {"precision": "float16"}}))
    assert plain == keys(recipe(targets={"a": ORT | {"precision": {"default": "float16"}}}))

import dataclasses
from typing import Any

import pytest
from small_recipe import recipe

from convkit.host.plan.stage_keys import Facts, explain_change, flatten, ingredients, stage_key
from convkit.host.plan.stages import Stage, plan_stages
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.errors import UsageError

ORT = {"runtime": "onnxruntime"}


def facts(stages: tuple[Stage, ...], **changes: Any) -> Facts:
    packages = {stage.environment: {"torch": "2.13.0", "onnxruntime": "1.31.1"} for stage in stages}
    given = Facts(
        source="source",
        original="source",
        files={},
        texts=(),
        packages=packages,
        code={stage.id: f"code of {stage.kind}" for stage in stages},
        platform="linux-x86_64",
        processor="some processor",
        toolchain="isolated",
    )
    return dataclasses.replace(given, **changes)


def parts_of(given: Recipe, name: str, **changes: Any) -> dict[str, str]:
    stages = plan_stages(given)
    stage = {stage.id: stage for stage in stages}[name]
    inputs = dict.fromkeys(stage.needs, "artifact")
    found = ingredients(stage, given, facts(stages, **changes), inputs)
    assert found is not None
    return found


def keys(given: Recipe, **changes: Any) -> dict[str, str]:
    return {
        stage.id: stage_key(parts_of(given, stage.id, **changes)) for stage in plan_stages(given)
    }


def test_targets_share_the_export_and_the_reference() -> None:
    stages = plan_stages(
        recipe(targets={"a": ORT, "b": ORT | {"versions": ["==1.21.*", "==1.31.*"]}})
    )
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
    for stage in plan_stages(
        recipe(targets={"a": ORT, "b": ORT | {"export": {"exporter": "torchscript"}}})
    ):
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
        ({"verify": {"tolerance": {"max_abs": 1e-4}, "seed": 1}}, {"reference"}),
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
        (
            {
                "code": dict.fromkeys(("export", "reference", "verify:ort"), "c")
                | {"build:ort": "b"}
            },
            {"export", "reference", "build:ort", "verify:ort"},
        ),
        ({"platform": "darwin-arm64"}, {"export", "reference", "build:ort", "verify:ort"}),
        ({"processor": "other"}, {"reference", "verify:ort"}),
    ],
)
def test_a_changed_fact_moves_the_keys_of_the_stages_it_can_change(
    change: dict[str, Any], moved: set[str]
) -> None:
    before, after = keys(recipe()), keys(recipe(), **change)
    assert {name for name in before if before[name] != after[name]} == moved


def test_other_samples_export_again() -> None:
    inputs = recipe().dump()["inputs"]
    given = recipe(inputs=[*inputs[:2], inputs[2] | {"sample": {"file": "types.npy"}}])
    before, after = (keys(given, files={"types.npy": digest}) for digest in ("one", "other"))
    assert {name for name in before if before[name] != after[name]} == {"export", "reference"}


def test_other_calibration_data_build_again() -> None:
    precision = {"quantize": "static-int8", "calibration": {"file": "data.npz"}}
    given = recipe(targets={"a": ORT | {"precision": precision}, "b": ORT})
    before, after = (keys(given, files={"data.npz": digest}) for digest in ("one", "other"))
    assert {name for name in before if before[name] != after[name]} == {
        "precision:a",  # which measures whether weights have eight bits or seven
        "build:a",
    }


def test_other_texts_do_not_export_again() -> None:
    model = {"package": {"name": "some-model", "version": "1.0", "path": "model"}}
    given = recipe(model=model, verify={"texts": "texts.txt", "tolerance": {"max_abs": 1e-4}})
    before, after = (keys(given, texts=(text,)) for text in ("one", "other"))
    assert {name for name in before if before[name] != after[name]} == {"reference"}


def test_the_order_of_inputs_is_part_of_the_key() -> None:
    dump = recipe().dump()
    exchanged = recipe(inputs=[dump["inputs"][0], dump["inputs"][2], dump["inputs"][1]])
    assert keys(recipe())["export"] != keys(exchanged)["export"]


def test_another_input_artifact_is_another_key() -> None:
    stages = plan_stages(recipe())
    build = next(stage for stage in stages if stage.id == "build:ort")
    one, two = (ingredients(build, recipe(), facts(stages), {"export": d}) for d in ("1", "2"))
    assert one is not None
    assert two is not None
    assert stage_key(one) != stage_key(two)


def test_two_targets_that_build_the_same_thing_share_a_key() -> None:
    found = keys(recipe(targets={"a": ORT, "b": ORT}))
    assert found["build:a"] == found["build:b"]


def test_an_onnx_file_keeps_its_opset_unless_the_recipe_gives_one() -> None:
    opsets = [
        parts_of(recipe(model={"onnx": "net.onnx"}, **export), "export")["export.opset"]
        for export in ({}, {"export": {"input_order": "recipe"}}, {"export": {"opset": 18}})
    ]
    assert opsets == ["0", "0", "18"]


def test_unresolved_tools_leave_the_key_unknown() -> None:
    stages = plan_stages(recipe())
    assert ingredients(stages[0], recipe(), facts(stages, packages={}), {}) is None


def test_a_change_is_explained_by_the_recipe_s_key() -> None:
    before, now = parts_of(recipe(), "export"), parts_of(recipe(export={"opset": 19}), "export")
    assert explain_change(now, {}, before, {}) == "export.opset changed: 18 -> 19"
    assert (
        explain_change(now, {"export": "b"}, now, {"export": "a"})
        == "export has a different artifact"
    )
    assert explain_change(now, {}, now, {}) == "its artifact is no longer in the store"


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
        stage.id: stage
        for stage in plan_stages(
            recipe(targets={"a": ORT | {"precision": "float16"}, "b": ORT | own})
        )
    }
    assert stages["precision:b"].needs == ("export:b", "reference")
    assert stages["build:b"].needs == ("export:b", "precision:b")
    assert stages["verify:a"].needs == ("build:a", "reference", "export", "precision:a")
    assert stages["verify:b"].needs == ("build:b", "reference", "export:b", "precision:b")


@pytest.mark.parametrize(
    "change",
    [
        "bfloat16",
        {"default": "float16", "keep_float32": ["encoder"]},
        {"default": "float16", "saturate": True},
    ],
)
def test_every_part_of_a_precision_is_in_the_keys_of_what_it_decides(change: object) -> None:
    before = keys(recipe(targets={"a": ORT | {"precision": "float16"}}))
    after = keys(recipe(targets={"a": ORT | {"precision": change}}))
    assert {name for name in before if before[name] != after[name]} == {
        "precision:a",
        "build:a",
        "verify:a",
    }


@pytest.mark.parametrize(
    ("precision", "moved"),
    [
        ("float16", set()),
        ({"default": "float16", "keep_float32": "auto"}, {"precision:a"}),
        ({"quantize": "dynamic-int8", "keep_float32": "auto"}, {"precision:a"}),
        ({"quantize": "dynamic-int8"}, set()),
    ],
)
def test_the_tolerance_decides_what_is_searched_by_it(precision: object, moved: set[str]) -> None:
    before, after = (
        keys(recipe(targets={"a": ORT | {"precision": precision, "tolerance": {"max_abs": limit}}}))
        for limit in (0.1, 0.2)
    )
    assert {name for name in before if before[name] != after[name]} == moved


@pytest.mark.parametrize(
    ("precision", "needs"),
    [
        ({"quantize": "dynamic-int8", "reduce_range": False}, ("export",)),
        ({"quantize": "dynamic-int8"}, ("export", "precision:a")),
        ({"quantize": "static-int8", "reduce_range": False}, ("export", "reference")),
        ({"quantize": "static-int8"}, ("export", "precision:a", "reference")),
        (
            {"quantize": "static-int8", "reduce_range": False, "calibration": {"file": "data.npz"}},
            ("export",),
        ),
        (
            {"quantize": "static-int8", "keep_float32": "auto"},
            ("export", "precision:a", "reference"),
        ),
    ],
)
def test_a_build_calibrates_on_the_reference_s_cases(
    precision: object, needs: tuple[str, ...]
) -> None:
    stages = {
        stage.id: stage
        for stage in plan_stages(recipe(targets={"a": ORT | {"precision": precision}}))
    }
    assert stages["build:a"].needs == needs
    compared = tuple(name for name in needs if name != "reference")  # with what it was made of
    assert stages["verify:a"].needs == ("build:a", "reference", *compared)


def test_a_low_precision_is_simulated_where_its_device_is_absent_and_float32_is_not() -> None:
    on_cuda = ORT | {"device": "cuda"}
    given = recipe(targets={"low": on_cuda | {"precision": "float16"}, "full": on_cuda})
    absent = {stage.id: stage for stage in plan_stages(given, absent=frozenset({"cuda"}))}
    present = {stage.id: stage for stage in plan_stages(given)}
    assert absent["verify:low"].device == "cpu"
    assert not any("gpu" in line for line in absent["verify:low"].environment.requirements)
    assert absent["verify:full"].device == present["verify:low"].device == "cuda"


def test_float16_is_one_precision_however_it_is_written() -> None:
    plain = keys(recipe(targets={"a": ORT | {"precision": "float16"}}))
    assert plain == keys(recipe(targets={"a": ORT | {"precision": {"default": "float16"}}}))

"""A stage's key is its request: nothing that a worker is told may change without it."""

import dataclasses
import datetime as dt
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel
from small_recipe import recipe
from test_stages import ORT, facts, keys

from convkit.host.plan.stage_keys import (
    Contents,
    explain_change,
    ingredients,
    possible_keys,
    stage_key,
    without,
)
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.key_tree import alternatives, fields_of, models_among
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.run.run_key import run_key

FLOAT16 = {"default": "float16", "keep_float32": "auto", "saturate": True}
STATIC = {"quantize": "static-int8", "calibration": {"method": "percentile", "file": "c.npz"}}
TARGETS = {
    "ort": ORT,
    "low": ORT | {"precision": FLOAT16, "tolerance": {"max_abs": 0.1}},
    "int8": ORT | {"precision": STATIC, "artifact": "optimized"},
    "cuda": ORT | {"device": "cuda", "provider": "tensorrt", "provider_options": {"a": 1}},
    "engine": {
        "runtime": "tensorrt",
        "precision": "float16",
        "workspace_gib": 1.5,
        "dla": {"core": 1},
        "profiles": [{"sequence": {"min": 2, "typical": 8, "max": 16}}],
    },
    "ir": {"runtime": "openvino"},
    "rtx": {"runtime": "tensorrt-rtx"},
    "aimodel": {"runtime": "coreai"},
    "theirs": {"runtime": "given", "file": "theirs.tflite"},
    "program": {
        "runtime": "coreml",
        "precision": FLOAT16,
        "compression": {"weights": "palette", "bits": 4},
        "minimum": "iOS18",
    },
}
FILES = {
    "c.npz": "digest of c",
    "types.npy": "digest of types",
    "rows.npz": "digest of rows",
    "theirs.tflite": "digest of theirs",
    "other.tflite": "digest of another",
}
# Where a worker keeps what it measured changes nothing that it makes.
NO_PART = {"caches"}


def rich() -> Recipe:
    inputs = recipe().dump()["inputs"]
    sampled = [*inputs[:2], inputs[2] | {"sample": {"file": "types.npy"}}]
    return recipe(inputs=sampled, targets=TARGETS)


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value} other"
        case None:
            return "something"
        case tuple():
            return (*value, "more")
        case dict():
            return value | {"more": "more"}
        case _:
            raise TypeError(type(value))


def changes(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a request with one field changed, for each field at any depth."""
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        path = (*place, field.name)
        if dataclasses.is_dataclass(inner) and not isinstance(inner, type):
            for where, other in changes(inner, path):
                yield where, dataclasses.replace(value, **{field.name: other})
        elif isinstance(inner, tuple) and inner and dataclasses.is_dataclass(inner[0]):
            for where, other in changes(inner[0], (*path, "0")):
                yield where, dataclasses.replace(value, **{field.name: (other, *inner[1:])})
            yield path, dataclasses.replace(value, **{field.name: inner[1:]})
        else:
            yield path, dataclasses.replace(value, **{field.name: changed(inner)})


@pytest.mark.parametrize("absent", [frozenset[str](), frozenset({"cuda", "tensorrt"})], ids=len)
def test_every_field_of_every_request_is_in_its_key_but_where_caches_are(absent, monkeypatch):
    given = rich()
    stages = plan_stages(given, absent=absent)
    known = facts(stages, files=FILES)
    seen: dict[str, set[str]] = {}
    for stage in stages:
        inputs = dict.fromkeys(stage.needs, "artifact")
        request = request_for(stage, given, Contents(given, known, inputs))
        before = ingredients(stage, given, known, inputs)
        assert before is not None
        for path, other in changes(request):
            monkeypatch.setattr(
                "convkit.host.plan.stage_keys.request_for", lambda *_, other=other: other
            )
            after = ingredients(stage, given, known, inputs)
            assert after is not None
            moved = stage_key(before) != stage_key(after)
            assert moved, f"{stage.id}: {'.'.join(path)} changes nothing"
            seen.setdefault(type(request).__name__, set()).add(path[0])
        monkeypatch.undo()
    assert set(seen) == {
        *("ExportRequest", "ReferenceRequest", "PrecisionRequest", "BuildRequest", "VerifyRequest")
    }
    assert seen["BuildRequest"] >= NO_PART


def test_models_and_originals_of_parts_have_identities_of_their_own():
    parts = {
        name: SimpleNamespace(model=f"{name} model", original=f"{name} original")
        for name in ("encoder", "decoder")
    }
    given = SimpleNamespace(model="model", original="original", parts=parts)
    own = facts(())
    known = dataclasses.replace(
        own,
        source="model's",
        original="original's",
        parts={
            name: dataclasses.replace(own, source=f"{name} model's", original=f"{name} original's")
            for name in parts
        },
    )
    contents = Contents(given, known, {})
    for model in ("model", "original", *(f"{n} {m}" for n in parts for m in ("model", "original"))):
        assert contents.source(model) == f"{model}'s"


def test_caches_are_no_part_of_a_key():
    given = rich()
    known = facts(plan_stages(given), files=FILES)
    assert Contents(given, known, {}).caches("tensorrt") is None


# Each key of a recipe, changed to something else that is allowed. A key of the recipe's models that
# is not here fails the test below: a new key must be shown to count.
CHANGES: dict[str, dict[str, Any]] = {
    "name": {"name": "other"},
    "description": {"description": "other"},
    "model": {"model": {"config": {"architecture": "bert", "seed": 5}}},
    "export": {"export": {"opset": 17}},
    "evaluate": {
        "evaluate": {
            "data": "rows.npz",
            "inputs": {"ids": "ids"},
            "labels": "label",
            "metric": "accuracy",
            "max_drop": 0.1,
        }
    },
    "steps": {"steps": {"feeds": {"state_out": "state"}}},
    "verify": {"verify": {"tolerance": {"max_abs": 1e-4}, "seed": 4}},
    "targets": {"targets": TARGETS | {"more": ORT}},
    "waive": {
        "waive": [{"code": "N101", "target": "ort", "reason": "known", "until": "2027-01-31"}]
    },
    "track": {"track": {"experiment": "other"}},
}


def cache(name: str, length: str) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": ["batch", 2, length, 4]}


PERPLEXITY = {
    "evaluate": {
        "data": "rows.npz", "inputs": {"ids": "ids"}, "metric": "perplexity", "max_rise": 0.2
    }
}  # fmt: skip
AXIS = {"min": 1, "typical": 2, "max": 4}
GENERATES: dict[str, Any] = {
    "axes": {"batch": AXIS, "sequence": AXIS, "past": {"min": 1, "typical": 8, "max": 16}},
    "inputs": [
        *recipe().dump()["inputs"][:2],
        *(cache(f"past.0.{part}", "past") for part in ("key", "value")),
    ],
    "outputs": [
        *recipe().dump()["outputs"],
        *(cache(f"present.0.{part}", "past + sequence") for part in ("key", "value")),
    ],
    "steps": {"feeds": {"present.*": "past.*"}, "axis": "sequence", "greedy": "y"},
}
OF_A_TARGET: dict[str, list[tuple[str, Any]]] = {
    "ort": [
        ("precision", "bfloat16"),
        ("tolerance", {"rms": 1.0}),
        ("outputs", {"y": {"rms": 1.0}}),
        ("export", {"opset": 17}),
        ("device", "cuda"),
        ("optimization", "basic"),
        ("package", "genai"),
        ("shared_buffers", True),
        ("processors", "exact"),
        ("artifact", "optimized"),
        ("versions", ["==1.30.*"]),
        ("max_drop", 0.1),
        ("max_rise", 0.1),
        ("goals", {"size": "<= 0.5x original"}),
    ],
    "ir": [("plugin_properties", {"ENABLE_CPU_PINNING": False}), ("source", "onnx")],
    "cuda": [("tf32", True), ("provider", "cuda"), ("provider_options", {"a": 2})],
    "engine": [
        ("profiles", []),
        ("workspace_gib", 2.0),
        ("builder_level", 4),
        ("version_compatible", True),
        ("hardware_compatible", "ampere_plus"),
        ("weights", "refit"),
        ("sparse_weights", True),
        ("dla", {"core": 0}),
        ("tf32", True),
    ],
    "rtx": [("compute_capabilities", ["sm89"])],
    "aimodel": [
        ("decompose", ["scaled_dot_product_attention"]),
        ("entry_points", {"one": {"batch": 1}}),
    ],
    "theirs": [("file", "other.tflite"), ("names", {"y": "their y"})],
    "program": [
        ("minimum", "iOS17"),
        ("shapes", "enumerated"),
        ("compression", {"weights": "int8"}),
        ("states", True),
        ("images", True),
    ],
}
# What a target's key needs in the recipe, and the targets that such a recipe may have.
_STATE = {"dtype": "float32", "shape": [1, 2]}
KEEPS = {
    "inputs": [*recipe().dump()["inputs"], {"name": "state", **_STATE}],
    "outputs": [*recipe().dump()["outputs"], {"name": "state_out", **_STATE}],
    "steps": {"feeds": {"state_out": "state"}},
}
SEES = {
    "axes": {},
    "inputs": [
        {
            "name": "image",
            "dtype": "uint8",
            "shape": [1, 8, 8, 3],
            "sample": {"image": [0, 255]},
            "preprocess": {
                "fuse": True,
                "image": {"scale": "1/255"},
                "processor": {"config": {"image_processor_type": "ViTImageProcessor"}},
            },
        }
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
}


def decides(given: Recipe) -> str:
    """Return what a run's outcome is kept under: its stages' keys and what judges them."""
    found = keys(given, files=FILES)
    loaded = LoadedRecipe.__new__(LoadedRecipe)
    object.__setattr__(loaded, "recipe", given)
    return run_key(loaded.recipe, found, dt.date(2026, 6, 15))


@pytest.mark.parametrize("key", CHANGES)
@pytest.mark.sampled(2)
def test_no_key_of_a_recipe_changes_without_another_outcome_s_key(key):
    # With a state, so that there may be steps.
    state = {"dtype": "float32", "shape": ["batch", 2]}
    inputs = [*recipe().dump()["inputs"], {"name": "state", **state}]
    outputs = [*recipe().dump()["outputs"], {"name": "state_out", **state}]
    base = {"inputs": inputs, "outputs": outputs, "targets": TARGETS}
    assert decides(recipe(**base)) != decides(recipe(**base | CHANGES[key]))


@pytest.mark.parametrize(
    ("target", "key", "value"),
    [(target, key, value) for target, listed in OF_A_TARGET.items() for key, value in listed],
)
def test_no_key_of_a_target_changes_without_another_outcome_s_key(target, key, value):
    of_ort, of_coreml = ("package", "shared_buffers"), ("states", "images")
    few = dict.fromkeys(of_ort, "ort") | dict.fromkeys(of_coreml, "program")
    only = few.get(key)
    targets = {only: TARGETS[only]} if only else TARGETS  # what few runtimes have
    other = targets | {target: targets[target] | {key: value}}
    # Without an evaluation, a target has no limit of its own; a package generates text.
    needed = {"max_rise": PERPLEXITY, "package": GENERATES, "states": KEEPS, "images": SEES}
    needed["shared_buffers"] = KEEPS
    base = needed.get(key, CHANGES["evaluate"])
    assert decides(recipe(targets=targets, **base)) != decides(recipe(targets=other, **base))


def test_every_key_of_every_target_is_changed_above():
    listed = {key for changes_of in OF_A_TARGET.values() for key, _ in changes_of}
    targets = fields_of(Recipe)["targets"].annotation
    models: list[type[BaseModel]] = models_among(
        [leaf for part in get_args(targets) for leaf in alternatives(part)]
    )
    assert len(models) == len(set(models)) >= 3
    assert get_origin(targets) is dict
    known = {key for model in models for key in fields_of(model)} - {"runtime"}
    built_in = {
        key
        for model in models
        if model.__module__.startswith("convkit.")
        for key in fields_of(model)
    }
    assert known & built_in - {"runtime", "tools"} == listed


def test_every_key_of_a_recipe_is_changed_above_or_is_in_the_contract():
    assert set(fields_of(Recipe)) == {
        *CHANGES,
        # Counted by what they resolve to: see the packages of `Facts`.
        "tools",
        # Fields of the contract and of the sources, which the requests above hold.
        *("schema", "original", "axes", "inputs", "outputs"),
        # What `convkit bench` reads; a run neither measures nor judges it.
        *("bench", "goals"),
        # By the content of its files: tests/whole_runs/models/test_custom_ops.py changes a library.
        "custom_ops",
        # A part's keys are those of a recipe, and the flow is in the requests: see below.
        *("parts", "join"),
    }


def test_what_a_stage_has_not_read_finds_it_under_its_key():
    given = rich()
    stages = plan_stages(given)
    export = next(stage for stage in stages if stage.kind == "export")
    parts = ingredients(export, given, facts(stages, files=FILES), {})
    assert parts is not None
    typical = [name for name in parts if name.endswith(".typical")]
    masks = [name for name in parts if ".outputs." in name and name.endswith(".mask")]
    assert typical
    assert masks
    other = parts | dict.fromkeys(typical, "77")
    unread = without(parts, ["typical"])
    assert set(parts) - set(unread) == set(typical)
    assert stage_key(unread) in possible_keys(parts)
    assert stage_key(unread) in possible_keys(other)
    # One that has read them is another stage's.
    assert stage_key(without(parts, ["mask"])) not in possible_keys(other)
    assert stage_key(parts) not in possible_keys(other)
    # An explanation of what changed names only what was read.
    assert (
        explain_change(other, {}, unread | {"runtime": "other"}, {})
        == "runtime changed: other -> None"
    )
    assert "typical changed" in explain_change(other, {}, parts, {})

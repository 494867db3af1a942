"""A plan names the lines and files for which a stage runs, and no others."""

import dataclasses
from pathlib import Path

import pytest

from convkit.host.home import Home
from convkit.host.plan.stage_keys import Facts, ingredients
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.run.changed_lines import causes_of, taken_back

TEXT = """schema: 1
name: small
model: {config: {architecture: bert}}
axes:
  batch: {min: 1, typical: 2, max: 4}
inputs:
  - {name: ids, dtype: int64, shape: [batch, 8], sample: token_ids}
outputs:
  - {name: y, dtype: float32, shape: [batch, 8, 4]}
verify:
  tolerance: {max_abs: 1.0e-4}
targets:
  ort: {runtime: onnxruntime}
"""
STAGES = ("export", "reference", "build:ort", "verify:ort")


def loaded(text: str) -> LoadedRecipe:
    return parse_recipe(text, Path("small.yaml"))


def facts_of(text: LoadedRecipe, source: str) -> Facts:
    stages = plan_stages(text.recipe)
    code = {stage.id: "code" for stage in stages}
    packages = {stage.environment: {"torch": "2.13.0"} for stage in stages}
    return Facts(source, source, {}, (), packages, code, "linux", "processor", "isolated")


def causes(
    folder: Path,
    *edits: tuple[str, str],
    source: str = "content",
    opened: dict[str, str] | None = None,
) -> dict[str, list[str]]:
    """Return the causes by stage, after a run of `TEXT` and edits of it; stages without one are
    left out.
    """
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    home = Home(folder)
    run = home.runs_of("small") / "20260101-000000-0000"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(TEXT)
    before, now = loaded(TEXT), loaded(text)
    read = {"reference": {"weights.npz": "then", "helper.py": "same"}}
    facts_then = dataclasses.replace(facts_of(before, "content"), opened=read)
    after = {"reference": read["reference"] | (opened or {})}
    facts_now = dataclasses.replace(facts_of(now, source), opened=after)
    earlier = {stage.id: stage for stage in plan_stages(before.recipe)}
    changes = taken_back(now, home, (), frozenset())
    found = {}
    for stage in plan_stages(now.recipe):
        inputs = dict.fromkeys(stage.needs, "artifact")
        parts = ingredients(stage, now.recipe, facts_now, inputs)
        assert parts is not None
        old = earlier.get(stage.id)
        parts_then = ingredients(old, before.recipe, facts_then, inputs) if old else None
        lines = causes_of(stage, parts, parts_then or {}, inputs, facts_now, changes, now)
        if lines:
            found[stage.id] = lines
    return found


@pytest.mark.parametrize(
    ("old", "new", "stages", "cause"),
    [
        ("verify:\n", "verify:\n  seed: 3\n", ["reference"], "small.yaml:11: verify.seed"),
        ("1.0e-4", "1.0e-3", [], ""),
        ("schema: 1", "schema: 1\ndescription: new", [], ""),
        ("schema: 1", "# a comment\nschema: 1", [], ""),
        ("typical: 2", "typical: 3", STAGES, "small.yaml:5: axes.batch.typical"),
        ("targets:\n", "export: {opset: 19}\ntargets:\n", ["export"], "small.yaml:12: export"),
        (
            "runtime: onnxruntime",
            "runtime: onnxruntime, optimization: basic",
            ["build:ort", "verify:ort"],
            "small.yaml:13: targets.ort.optimization",
        ),
        (
            "  ort: {runtime: onnxruntime}\n",
            "  ort: {runtime: onnxruntime}\n  more: {runtime: onnxruntime}\n",
            ["build:more", "verify:more"],
            "small.yaml:14: targets.more",
        ),
    ],
)
def test_an_edit_is_named_for_the_stages_that_it_moves(
    tmp_path: Path, old: str, new: str, stages: tuple[str, ...], cause: str
) -> None:
    assert causes(tmp_path, (old, new)) == {stage: [cause] for stage in stages}


def test_of_two_edits_each_stage_names_its_own(tmp_path: Path) -> None:
    found = causes(
        tmp_path,
        ("verify:\n", "verify:\n  seed: 3\n"),
        ("runtime: onnxruntime", "runtime: onnxruntime, optimization: basic"),
    )
    seed, level = "small.yaml:11: verify.seed", "small.yaml:14: targets.ort.optimization"
    assert found == {"reference": [seed], "build:ort": [level], "verify:ort": [level]}


def test_the_models_own_files_are_named_by_its_line(tmp_path: Path) -> None:
    named = ["small.yaml:3: model (its files have changed)"]
    assert causes(tmp_path, source="other") == {"export": named, "reference": named}


def test_a_file_that_a_stage_read_is_named(tmp_path: Path) -> None:
    assert causes(tmp_path, opened={"weights.npz": "now"}) == {"reference": ["weights.npz"]}


def test_without_an_earlier_run_no_line_is_blamed(tmp_path: Path) -> None:
    assert taken_back(loaded(TEXT), Home(tmp_path), (), frozenset()) == []

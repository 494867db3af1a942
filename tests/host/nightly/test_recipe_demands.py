"""What a recipe demands: every loosening is a fault until it is accepted, every tightening is said,
and another way to write the same is no change.
"""

import copy
import dataclasses
import io
import math
from pathlib import Path
from typing import Any

import pytest
from past_runs import RECIPE
from rich.console import Console
from synthetic import AVX2, AVX512, Simulation, with_verification

from convkit.cli.output.audit_text import audit_text
from convkit.host.audit.audit_answer import audit
from convkit.host.audit.past_runs.later_records import ReproductionClass
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.nightly.baseline_comparison import compare
from convkit.host.nightly.recipe_demands import changed_demands, demands_of, names_model, tried_by
from convkit.host.nightly.run_snapshot import Snapshot, TargetSnapshot
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.messages import EvaluationMetrics

WHOLE: dict[str, Any] = RECIPE | {
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": ["batch", 3]},
        {"name": "label", "dtype": "int64", "shape": ["batch"]},
    ],
    "verify": {
        "seed": 11,
        "tolerance": {"max_abs": 1e-5},
        "outputs": {"label": {"agreement": 0.9}},
        "by_precision": {"float16": {"tolerance": {"max_abs": 1e-3}}},
        "budget": 60,
        "skip": ["extreme"],
    },
    "evaluate": {
        "data": "rows.jsonl", "inputs": {"x": "x"}, "labels": "label", "metric": "accuracy",
        "max_drop": 0.01, "rows": 100,
    },
    "goals": {"size": "<= 0.5x original", "latency": {"p50": "<= 0.8x original"}},
    "targets": {
        "ort": {"runtime": "onnxruntime"},
        "half": {"runtime": "tensorrt", "precision": "float16"},
        "int8": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"},
                 "tolerance": {"cosine": 0.97}, "max_drop": 0.02},
    },
}  # fmt: skip

# Edits that demand less, by key path, and what is said of them. The way back demands more.
LOOSER = {
    "evaluate.max_drop": (1.0, "ort: max_drop 0.01 -> 1"),
    "targets.int8.max_drop": (0.5, "int8: max_drop 0.02 -> 0.5"),
    "targets.ort.max_drop": (0.5, "ort: max_drop 0.01 -> 0.5"),
    "evaluate.rows": (10, "the recipe's evaluate: rows 100 -> 10"),
    "goals.size": ("<= 0.9x original", "half goals: size 0.5 -> 0.9"),
    "goals.latency": (None, "ort goals: the limit p50 0.8 was removed"),
    "targets.ort.goals": ({"size": "<= 2x original"}, "ort goals: size 0.5 -> 2"),
    "verify.tolerance.max_abs": (1e-2, "ort y tolerance: max_abs 1e-05 -> 0.01"),
    "verify.outputs.label": ({"agreement": 0.5}, "ort label tolerance: agreement 0.9 -> 0.5"),
    "verify.by_precision.float16.tolerance": (
        {"max_abs": 1.0}, "half y tolerance: max_abs 0.001 -> 1"),
    "targets.half.outputs": ({"y": {"max_abs": 5.0}}, "half y tolerance: max_abs 0.001 -> 5"),
    "targets.int8.tolerance.cosine": (0.1, "int8 y tolerance: cosine 0.97 -> 0.1"),
    "verify.tolerance.ulps": (1000, "ort y tolerance: ulps 0 -> 1000"),
    "verify.budget": (1, "the recipe's verify: budget 60 -> 1"),
    "verify.ladder": ("quick", "the recipe's verify: ladder full -> quick"),
    "verify.skip": (["extreme", "padded"], "the recipe's verify: skip padded"),
    "targets.int8.processors": ("exact", "int8: no longer processors saturating-pairs"),
}  # fmt: skip

# Other ways to write what holds anyway.
SAME = {
    "verify.ladder": "full",
    "targets.ort.max_drop": 0.01,
    "targets.ort.outputs": {"y": {"max_abs": 1e-5}},
    "targets.half.goals": {"size": "<= 0.5x original", "latency": {"p50": "<= 0.8x original"}},
    "targets.int8.processors": "any",
    "targets.half.outputs": {"label": {"agreement": 0.9}},
    "export": {"opset": 18},
    "description": "the same",
}


def edited(recipe: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    made = copy.deepcopy(recipe)
    *above, last = path.split(".")
    place = made
    for key in above:
        place = place[key]
    place[last] = value
    if value is None:
        del place[last]
    return made


def read(recipe: dict[str, Any]) -> Recipe:
    return Recipe.model_validate(recipe)


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, str]]:
    found = changed_demands(demands_of(read(before)), demands_of(read(now)))
    return [(each.change, each.message) for each in found]


@pytest.mark.parametrize("path", LOOSER)
def test_a_looser_demand_is_named_and_the_way_back_is_stricter(path: str) -> None:
    value, message = LOOSER[path]
    loose = edited(WHOLE, path, value)
    found = changes(WHOLE, loose)
    assert ("looser", message) in found
    assert {change for change, _ in found} == {"looser"}
    assert {change for change, _ in changes(loose, WHOLE)} == {"stricter"}


@pytest.mark.parametrize("path", SAME)
def test_another_way_to_write_a_demand_is_no_change(path: str) -> None:
    same = edited(WHOLE, path, SAME[path])
    assert changes(WHOLE, same) == []
    assert tried_by(read(WHOLE)) == tried_by(read(same))


def test_a_limit_on_parts_is_compared() -> None:
    part = {"model": {"factory": "model.py:build"}, "inputs": WHOLE["inputs"],
            "outputs": WHOLE["outputs"][:1], "tolerance": {"max_abs": 1e-5}}  # fmt: skip
    recipe = {key: WHOLE[key] for key in ("schema", "name", "axes", "inputs")} | {
        "original": WHOLE["model"], "outputs": WHOLE["outputs"][:1], "parts": {"whole": part},
        "join": [{"call": "whole"}, {"return": {"y": "whole.y"}}],
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }  # fmt: skip
    part["model"] = WHOLE["model"]
    loose = edited(recipe, "parts.whole.tolerance.max_abs", 1.0)
    assert changes(recipe, loose) == [("looser", "ort/whole y tolerance: max_abs 1e-05 -> 1")]
    narrow = edited(
        recipe, "parts.whole.inputs", [WHOLE["inputs"][0] | {"sample": {"uniform": [0.0, 0.1]}}]
    )
    assert tried_by(read(recipe)) != tried_by(read(narrow))


@pytest.mark.parametrize(
    "changed",
    [
        {"model": {"factory": {"call": "model.py:build", "seed": 4}}},
        {"model": {"factory": {"call": "model.py:build", "seed": 3, "arguments": {"layers": 1}}}},
        {"model": WHOLE["model"] | {"dtype": "float16"}},
    ],
)
def test_another_model_of_the_same_files_is_to_be_accepted(changed: dict[str, Any]) -> None:
    before, now = (tried_by(read(each)) for each in (WHOLE, WHOLE | changed))
    assert before != now
    assert [key for key in {**before, **now} if before.get(key) != now.get(key) if names_model(key)]


def scored(drop: float, rows: int = 200) -> Any:
    found = EvaluationMetrics("accuracy", rows, 0.9, 0.9 - drop, drop, drop, drop)
    return with_verification(lambda each: dataclasses.replace(each, evaluation=found))


@pytest.fixture
def simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return a simulation of a recipe with a task, whose first run is accepted."""
    recipe = RECIPE | {key: WHOLE[key] for key in ("evaluate", "goals")}
    made = Simulation.install(tmp_path / "place", monkeypatch, recipe=recipe, targets=("ort",))
    (made.folder / "recipes" / "rows.jsonl").write_text('{"x": [0, 0, 0, 0], "label": 1}\n')
    made.changes["ort"] = scored(0.005)
    assert made.night().status == "green"
    made.accept()
    assert made.night().notes == ()
    return made


def test_a_looser_limit_on_the_score_is_red_until_it_is_accepted(simulation: Simulation) -> None:
    before, simulation.recipe = simulation.recipe, edited(
        simulation.recipe, "evaluate.max_drop", 1.0
    )  # fmt: skip
    simulation.write_recipe()
    for _ in range(2):
        (fault,) = simulation.night().faults
        assert (fault.kind, fault.subject, fault.target) == ("tolerance", "ort max_drop", "ort")
    simulation.accept()
    assert simulation.night().status == "green"
    simulation.recipe = before
    simulation.write_recipe()
    result = simulation.night()
    assert (result.status, result.improvements) == ("green", ("ort: max_drop 1 -> 0.01",))


@pytest.mark.parametrize(
    ("path", "value", "kind"),
    [("evaluate.metric", "f1", "case"), ("evaluate.labels", "other", "case"),
     ("goals", None, "tolerance"), ("verify.skip", ["padded"], "case")],
)  # fmt: skip
def test_another_task_or_no_goal_is_red(
    simulation: Simulation, path: str, value: object, kind: str
) -> None:
    simulation.recipe = edited(simulation.recipe, path, value)
    simulation.write_recipe()
    assert {fault.kind for fault in simulation.night().faults} == {kind}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [("targets.ort.optimization", "none", "ort optimization: (absent) -> none"),
     ("targets.ort.export", {"opset": 20}, "ort export.opset: (absent) -> 20"),
     ("bench", {"threads": 64}, "the recipe's bench.threads: (absent) -> 64")],
)  # fmt: skip
def test_another_build_of_a_target_or_other_timings_are_to_be_accepted(
    simulation: Simulation, path: str, value: object, message: str
) -> None:
    simulation.recipe = edited(simulation.recipe, path, value)
    simulation.write_recipe()
    found = [fault.message for fault in simulation.night().faults]
    assert found == [message]
    simulation.accept()
    assert simulation.night().status == "green"


def test_a_baseline_without_options_is_compared_without_them() -> None:
    def snapshot(options: dict[str, str] | None) -> Snapshot:
        target = TargetSnapshot("verified", "", "onnxruntime", "cpu", "float32", options=options)
        return Snapshot("small", {"ort": target})

    other = snapshot({"optimization": "none"})
    assert compare(snapshot(None), other).faults == ()
    (fault,) = compare(snapshot({}), other).faults
    assert (fault.kind, fault.target) == ("target", "ort")


def test_a_task_that_is_new_is_an_improvement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Simulation.install(tmp_path / "place", monkeypatch, targets=("ort",))
    made.night()
    made.accept()
    (made.folder / "recipes" / "rows.jsonl").write_text("{}\n")
    made.recipe = made.recipe | {"evaluate": WHOLE["evaluate"]}
    made.write_recipe()
    result = made.night()
    assert (result.faults, result.status) == ((), "green")
    assert "ort: max_drop 0.01 is new" in result.improvements


@pytest.mark.thorough
def test_a_score_that_lost_more_is_red(simulation: Simulation) -> None:
    for drop, kinds in ((0.0051, []), (0.0, []), (0.009, ["figure"]), (math.nan, ["figure"])):
        simulation.changes["ort"] = scored(drop)
        assert [each.kind for each in simulation.night().faults] == kinds, drop
    simulation.changes["ort"] = scored(0.005, rows=100)
    assert [each.kind for each in simulation.night().faults] == ["case"]
    simulation.changes.clear()
    (fault,) = simulation.night().faults
    assert fault.message == "ort is no longer scored by accuracy"


def test_another_processor_may_change_one_decision(simulation: Simulation) -> None:
    simulation.host = dict(AVX2)
    for drop, status in ((0.0095, "green"), (0.011, "regressed")):
        simulation.changes["ort"] = scored(drop)
        result = simulation.night()
        assert result.status == status
        assert bool(result.elsewhere) == (status == "green")


# What reproductions reach in one night after another, and whether the last is worse than before.
HERE, ELSEWHERE = AVX512, AVX2
REPRODUCED: dict[str, tuple[list[tuple[ReproductionClass, dict[str, str]]], bool]] = {
    "as before": ([("BIT_IDENTICAL", HERE)], False),
    "other bytes": ([("CANONICAL_IDENTICAL", HERE)], True),
    "other weights": ([("STRUCTURAL", HERE)], True),
    "another graph": ([("NUMERIC_OK", HERE)], True),
    "out of tolerance": ([("DRIFTED", HERE)], True),
    "no build": ([("BUILD_FAILED", HERE)], True),
    "no longer to be checked": ([("UNVERIFIABLE", HERE)], True),
    "no device": ([("SKIPPED_NO_WORKER", HERE)], True),
    "lost again": ([("STRUCTURAL", HERE), ("BIT_IDENTICAL", HERE), ("STRUCTURAL", HERE)], True),
    "back": ([("DRIFTED", HERE), ("BIT_IDENTICAL", HERE)], False),
    "rounded elsewhere": ([("WITHIN_ROUNDING", ELSEWHERE)], False),
    "drifted elsewhere": ([("DRIFTED", ELSEWHERE)], True),
    "another graph elsewhere": ([("NUMERIC_OK", ELSEWHERE)], True),
    "lost there": ([("BIT_IDENTICAL", ELSEWHERE), ("WITHIN_ROUNDING", ELSEWHERE)], True),
}


@pytest.mark.parametrize("name", REPRODUCED)
@pytest.mark.sampled(2)
def test_an_audit_says_of_a_reproduction_what_the_nightly_run_says(
    simulation: Simulation, name: str
) -> None:
    nights, worse = REPRODUCED[name]
    folder = max(simulation.home.runs_of("small").glob("*/result.json")).parent
    accepted = LocatedRun(folder.with_name(simulation.night().baseline))
    assert audit(accepted, simulation.home).lost[-1] == ()
    for likeness, host in nights:
        simulation.likeness, simulation.host = likeness, dict(host)
        faults = [each for each in simulation.night().faults if each.kind == "reproduction"]
    answer = audit(accepted, simulation.home)
    assert [str(each) for each in answer.lost[-1]] == [each.message for each in faults]
    assert bool(faults) == worse
    console = Console(file=io.StringIO(), width=200)
    console.print(audit_text(answer))
    assert all(f"worse than before: {each.message}" in console.file.getvalue() for each in faults)

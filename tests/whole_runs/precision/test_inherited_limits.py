"""Limits for float32 that targets in other types inherit and cannot meet."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from convkit.host.home import Home
from convkit.host.recipe.editing.key_changes import changed
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.record.run_summary import causes, located_findings
from convkit.host.repair.repair_command import RepairOutcome, repair_recipe
from convkit.host.run.rejudging import rejudge_record
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

GRAPH = """<ir_version: 9, opset_import: ["" : 18]>
g (float[batch,64] x) => (float[batch,32] y) {
    hidden = MatMul(x, first)
    active = Relu(hidden)
    y = MatMul(active, second)
}"""
CONTENT: dict[str, Any] = {
    "schema": 1,
    "name": "inherited",
    "model": {"onnx": "net.onnx"},
    "tools": {"onnxruntime": "==1.31.*"},
    "axes": {"batch": {"min": 1, "typical": 3, "max": 5}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 64]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 32]}],
    "verify": {"outputs": {"y": {"max_abs": 1e-4}}},
    "targets": {
        "plain": {"runtime": "onnxruntime"},
        "half": {"runtime": "onnxruntime", "precision": "float16"},
        "searched": {
            "runtime": "onnxruntime",
            "precision": {"default": "float16", "keep_float32": "auto"},
        },
        "int8": {
            "runtime": "onnxruntime",
            "precision": {"quantize": "dynamic-int8", "reduce_range": True},
        },
        "channels": {
            "runtime": "onnxruntime",
            "precision": {"quantize": "dynamic-int8", "reduce_range": True, "per_channel": False},
        },
        "own": {
            "runtime": "onnxruntime",
            "precision": {"quantize": "dynamic-int8", "reduce_range": True},
            "tolerance": {"nrmse": 1e-5},
        },
    },
}


@dataclasses.dataclass(frozen=True)
class Ran:
    folder: Path
    repair: RepairOutcome

    def again(self, content: dict[str, Any]) -> RunRecord:
        path = self.folder / "changed.yaml"
        path.write_text(yaml.safe_dump(content))
        return run_recipe(options(path, self.folder)).record

    @property
    def targets(self) -> dict[str, TargetReport]:
        return {each.name: each for each in self.repair.first.targets}


def options(recipe: Path, folder: Path) -> RunOptions:
    return RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("inherited")
    model = onnx.parser.parse_model(GRAPH)
    random = np.random.default_rng(0)
    for name, shape in (("first", (64, 64)), ("second", (64, 32))):
        weights = random.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save(model, folder / "net.onnx")
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(CONTENT, sort_keys=False))
    return Ran(folder, repair_recipe(options(recipe, folder)))


def test_the_limit_leads_once_for_all_that_inherit_it(ran: Ran) -> None:
    failed = {name: each for name, each in ran.targets.items() if each.status == "failed"}
    assert set(failed) == {"half", "searched", "int8", "channels", "own"}
    assert {each.leading.code for each in failed.values() if each.leading} == {"N502"}
    errors = [each for each in causes(ran.repair.first) if each.finding.is_error]
    assert {(each.finding.code, each.where) for each in errors} == {
        ("N502", ("half", "searched")),
        ("N502", ("int8", "channels")),
        ("N502", ("own",)),
    }


def test_what_follows_from_it_offers_nothing(ran: Ran) -> None:
    for report in ran.targets.values():
        found = [*report.findings, *(f for v in report.verifications for f in v.findings)]
        consequences = [each for each in found if each.is_error and each.code != "N502"]
        assert (report.status == "failed") is bool(consequences), report.name
        assert not any(each.remedy and each.remedy.change for each in consequences)


def test_a_repair_tries_nothing(ran: Ran) -> None:
    assert (ran.repair.steps, ran.repair.withdrawn) == ((), ())
    assert {each.path for each in ran.repair.withheld} == {
        "verify.outputs",
        "verify.by_precision.float32.outputs.y",
        "verify.by_precision.float16.outputs.y",
        "verify.by_precision.int8.outputs.y",
    }


@pytest.mark.thorough
def test_with_the_limits_that_it_names_all_are_right(ran: Ran) -> None:
    change = {
        path: value
        for located in located_findings(ran.repair.first)
        if located.finding.code == "N502" and located.finding.remedy
        for path, value in located.finding.remedy.change.items()
    }
    record = ran.again(changed(CONTENT, change))
    assert {each.name: each.status for each in record.targets} == {
        **dict.fromkeys(("plain", "half", "searched", "int8", "channels"), "verified"),
        "own": "failed",
    }


def test_a_stored_run_says_the_same_when_it_is_judged_again(ran: Ran) -> None:
    from convkit.host.recipe.keys.recipe import Recipe

    judged = rejudge_record(ran.repair.first, Recipe.model_validate(CONTENT))
    leading = {each.name: each.leading.code for each in judged.targets if each.leading}
    assert leading["int8"] == leading["half"] == "N502"

"""Recipes with OpenVINO targets through `convkit run`: real exports and IRs, the real plugin."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ir_models import dense, kernel_types
from shared_keys import TOOLS, bert

from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import TargetReport
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.protocol.errors import FeedError
from convkit.python.built_model import load
from convkit.runtimes.openvino import session as openvino
from convkit.runtimes.openvino.options import OpenVINOOptions

pytest.importorskip("openvino")

OV = {"runtime": "openvino"}
BERT = bert(seed=0)
RECIPE = BERT | {
    "schema": 1,
    "name": "ov",
    "model": BERT["model"] | {"task": "feature-extraction"},
    "tools": TOOLS,
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 3},
        "sequence": {"min": 2, "typical": 8, "max": 16},
    },
    "outputs": [BERT["outputs"][0] | {"mask": "attention_mask"}],
    "verify": {"tolerance": {"max_abs": 1.0e-5, "cosine": 0.99999}},
    "targets": {
        "float32": OV,
        "bfloat16": OV
        | {"precision": {"default": "bfloat16", "saturate": True}, "tolerance": {"cosine": 0.999}},
        "mixed": OV
        | {
            "precision": {
                "default": "bfloat16",
                "keep_float32": ["encoder.layer.1"],
                "saturate": True,
            },
            "tolerance": {"cosine": 0.999},
        },
        "float16": OV
        | {"precision": {"default": "float16", "saturate": True}, "tolerance": {"max_abs": 0.02}},
        "int8": OV | {"precision": {"quantize": "static-int8"}, "tolerance": {"cosine": 0.99}},
    },
}


def run(folder: Path, home: Path, toolchain: Any = "host", **changes: Any) -> RunOutcome:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(copy.deepcopy(RECIPE) | changes, sort_keys=False))
    return run_recipe(RunOptions(path, Home(home), toolchain=toolchain, track=False))


def by_target(outcome: RunOutcome) -> dict[str, TargetReport]:
    return {report.name: report for report in outcome.record.targets}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    return run(tmp_path_factory.mktemp("recipe"), tmp_path_factory.mktemp("home"))


@pytest.mark.slow
def test_a_bert_verifies_in_every_precision(outcome: RunOutcome) -> None:
    reports = by_target(outcome)
    assert {name: report.status for name, report in reports.items()} == dict.fromkeys(
        reports, "verified"
    )
    # On processors whose pairs saturate, int8 is verified on the others by simulation as well.
    evidence = {
        name: min(each.evidence for each in report.verifications)
        for name, report in reports.items()
    }
    low = {
        name: "device" if openvino.can_compute(name) else "simulated"
        for name in ("bfloat16", "float16")
    }
    assert evidence == low | {"float32": "device", "mixed": low["bfloat16"], "int8": "device"}
    for report in reports.values():
        assert len(report.verifications[0].cases) >= 6
    sizes = {
        name: (outcome.folder / "models" / name / "model.bin").stat().st_size for name in reports
    }
    assert sizes["int8"] < sizes["bfloat16"] < sizes["mixed"] < sizes["float32"]


@pytest.mark.slow
def test_its_models_are_loaded_by_convkit(outcome: RunOutcome) -> None:
    ids = np.ones((2, 5), np.int64)
    feeds = {"input_ids": ids, "attention_mask": ids, "token_type_ids": 0 * ids}
    expected = None
    for name in by_target(outcome):
        session = load(outcome.folder / "models" / name)
        assert [spec.shape for spec in session.inputs] == [("batch", "sequence")] * 3
        found = session(feeds)["last_hidden_state"]
        expected = found if expected is None else expected
        assert np.max(np.abs(found - expected)) <= 0.2
    with pytest.raises(FeedError, match="input_ids"):
        session(feeds | {"input_ids": ids.astype(np.int32)})


@pytest.mark.slow
@pytest.mark.skipif(not openvino.can_compute("bfloat16"), reason="a CPU without bfloat16")
def test_the_kept_layer_runs_in_float32(outcome: RunOutcome) -> None:
    file = outcome.folder / "models" / "mixed" / "model.xml"
    types = kernel_types(openvino.open(file, "cpu", OpenVINOOptions()))
    operators = json.loads((file.parent / "operators.json").read_text())["operators"]
    assert any(each["module"].startswith("encoder.layer.1") for each in operators)
    assert set(types.values()) >= {"bf16", "f32"}


ONNX_RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "dense",
    "model": {"onnx": "export/model.onnx"},
    "tools": TOOLS,
    "axes": {"batch": {"min": 1, "typical": 4, "max": 8}},
    "inputs": [
        {"name": name, "dtype": "float32", "shape": ["batch", 64], "sample": {"normal": [0, 1]}}
        for name in ("x", "z")
    ],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 64]}],
    "verify": {"tolerance": {"max_abs": 1.0e-5}},
    "targets": {
        "float32": OV | {"versions": ["==2025.4.*", "==2026.4.*"]},
        "bfloat16": OV | {"precision": "bfloat16", "tolerance": {"max_abs": 0.1}},
        "int8": OV | {"precision": {"quantize": "static-int8"}, "tolerance": {"cosine": 0.8}},
    },
}


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_two_releases_serve_one_artifact_in_isolated_environments(tmp_path: Path) -> None:
    dense(tmp_path / "recipe" / "export")
    path = _written(tmp_path / "recipe")
    outcome = run_recipe(RunOptions(path, Home(tmp_path / "home"), track=False))
    reports = by_target(outcome)
    assert {report.status for report in reports.values()} == {"verified"}
    releases = [
        stage.versions["openvino"]
        for stage in outcome.record.stages
        if stage.kind == "verify" and stage.target == "float32"
    ]
    assert sorted(release[:6] for release in releases) == ["2025.4", "2026.4"]
    assert {each.evidence for each in reports["float32"].verifications} == {"device"}


def test_without_openvino_its_targets_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convkit.host.facts import absent_devices

    dense(tmp_path / "recipe" / "export")
    monkeypatch.setattr(absent_devices, "host_has", lambda package: package != "openvino")
    recipe = load_recipe(_written(tmp_path / "recipe")).recipe
    absent = absent_devices.absent_parts(recipe, Home(tmp_path), "host", may_resolve=True)
    assert absent == {"openvino": "this environment has no openvino"}
    assert not any(stage.stand_in for stage in plan_stages(recipe, (), frozenset(absent)))


def _written(folder: Path) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(ONNX_RECIPE, sort_keys=False))
    return path

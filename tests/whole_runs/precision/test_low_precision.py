"""Targets in float16 and bfloat16 through `convkit run` whole, in this environment: real exports,
real onnxruntime.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from shared_keys import FACTORY, bert

from convkit.host.home import Home
from convkit.host.plan.stage_keys import FAILED
from convkit.host.run.plan_command import forecast
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.toolchain.device_detection import find_device
from convkit.protocol.findings.finding import Finding

# The product is beyond float16's range, and small again right after it.
OVERFLOWING = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.constant_(self.product.weight, 60000.0)

    def forward(self, x):
        return self.product(x) * 1e-5

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(self.before.weight, 1.0)
        self.blocks = torch.nn.ModuleList([Scaled()])
        self.after = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.after(self.blocks[0](self.before(x)))

def build():
    return Net()
"""
AXES = {"batch": {"min": 1, "typical": 3, "max": 5}}
TOLERANCE = {"max_abs": 0.05, "cosine": 0.999}


def write_recipe(folder: Path, code: str, precision: Any, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(code)
    recipe = FACTORY | {
        "name": "low",
        "inputs": [
            {
                "name": "x",
                "dtype": "float32",
                "shape": ["batch", 4],
                "sample": {"uniform": [0.5, 1]},
            }
        ],
        "verify": {"tolerance": TOLERANCE},
        "targets": {"ort": {"runtime": "onnxruntime", "precision": precision}},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | changes, sort_keys=False))
    return path


def run(recipe: Path, home: Path) -> RunOutcome:
    return run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False))


def found(outcome: RunOutcome, code: str) -> list[Finding]:
    return [finding for finding in outcome.record.findings if finding.code == code]


def codes(outcome: RunOutcome) -> set[str]:
    return {finding.code for finding in outcome.record.findings if finding.is_error}


def evidence(outcome: RunOutcome) -> str:
    return outcome.record.targets[0].verifications[0].evidence


def built(outcome: RunOutcome) -> onnx.ModelProto:
    return onnx.load(outcome.folder / "models" / "ort" / "model.onnx", load_external_data=False)


def share_of_float16(model: onnx.ModelProto) -> float:
    sizes = dict.fromkeys((onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16), 0)
    for weight in model.graph.initializer:
        if weight.data_type in sizes:
            sizes[weight.data_type] += int(np.prod(weight.dims))
    return sizes[onnx.TensorProto.FLOAT16] / sum(sizes.values())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def failed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    return run(write_recipe(tmp_path_factory.mktemp("failed"), OVERFLOWING, "float16"), home)


class TestOverflow:
    def test_it_passes_on_the_cpu_and_fails_here_with_its_module_named(
        self, failed: RunOutcome
    ) -> None:
        session = onnxruntime.InferenceSession(
            str(failed.folder / "models" / "ort" / "model.onnx"), providers=["CPUExecutionProvider"]
        )
        (y,) = session.run(None, {"x": np.ones((2, 4), np.float32)})
        assert np.isfinite(y).all()  # the CPU says nothing is wrong
        assert failed.record.status == "failed"
        assert evidence(failed) == "simulated"
        (finding,) = found(failed, "N202")
        assert finding.place.module == "blocks.0.product"
        assert 65520 < finding.evidence["float32_magnitude"] < 1e6
        assert "N202" in failed.record.targets[0].headline
        assert codes(failed) == {"N102", "N202"}

    def test_the_plan_says_that_its_check_failed(self, home: Path, tmp_path: Path) -> None:
        recipe = write_recipe(tmp_path, OVERFLOWING, "float16")
        outcome = run(recipe, home)
        assert outcome.record.status == "failed"
        rows = {row.stage: row for row in forecast(recipe, Home(home), (), "host")}
        assert (rows["verify:ort"].state, rows["verify:ort"].reason) == ("run", FAILED)
        assert rows["build:ort"].state == "hit"

    def test_its_remedy_verifies(self, failed: RunOutcome, home: Path, tmp_path: Path) -> None:
        (finding,) = found(failed, "N202")
        assert finding.remedy is not None
        (path,) = finding.remedy.change
        assert path == "targets.ort.precision"
        precision = finding.remedy.change[path]
        assert precision == {"default": "float16", "keep_float32": ["blocks.*"]}
        outcome = run(write_recipe(tmp_path, OVERFLOWING, precision), home)
        assert outcome.record.status == "verified"
        assert outcome.record.targets[0].precision == "float16, float32: blocks.*"
        reused = {stage.id for stage in outcome.record.stages if stage.status == "hit"}
        assert reused >= {"export", "reference"}  # and what a trial of the remedy has made

    @pytest.mark.thorough
    def test_a_border_in_the_wrong_place_is_named_too(self, home: Path, tmp_path: Path) -> None:
        """The product in float32 alone overflows where its result is cast."""
        precision = {"default": "float16", "keep_float32": ["blocks.*.product"]}
        outcome = run(write_recipe(tmp_path, OVERFLOWING, precision), home)
        (finding,) = found(outcome, "N202")
        assert finding.place.module == "blocks.0.product"
        assert finding.remedy is not None
        assert finding.remedy.change["targets.ort.precision"]["keep_float32"] == ["blocks.*"]

    @pytest.mark.thorough
    def test_two_targets_share_a_stage_and_each_is_told_its_own_change(
        self, home: Path, tmp_path: Path
    ) -> None:
        targets = {name: {"runtime": "onnxruntime", "precision": "float16"} for name in ("a", "b")}
        recipe = write_recipe(tmp_path, OVERFLOWING, "float16", targets=targets)
        changes = [
            finding.remedy.change.keys()
            for report in run(recipe, home).record.targets
            for finding in report.verifications[0].findings
            if finding.code == "N202" and finding.remedy
        ]
        assert changes == [{"targets.a.precision"}, {"targets.b.precision"}]

    def test_bfloat16_has_the_range_and_no_kernels_on_the_cpu(
        self, home: Path, tmp_path: Path
    ) -> None:
        outcome = run(write_recipe(tmp_path, OVERFLOWING, "bfloat16"), home)
        assert outcome.record.status == "failed"
        assert codes(outcome) == {"T101"}


@pytest.mark.skipif(
    find_device("cuda").there, reason="the device is there: nothing stands in for it"
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_simulation_stands_in_for_an_absent_device(tmp_path: Path, dtype: str) -> None:
    precision = {"default": dtype, "keep_float32": ["blocks"]}
    targets = {"low": {"runtime": "onnxruntime", "device": "cuda", "precision": precision}}
    outcome = run(write_recipe(tmp_path, OVERFLOWING, None, targets=targets), tmp_path / "home")
    (low,) = outcome.record.targets
    assert (low.status, low.device) == ("verified", "cuda")
    assert low.verifications[0].evidence == "simulated"
    notes = [finding for finding in low.verifications[0].findings if finding.code == "E101"]
    assert [(note.severity, "judged by simulation" in note.message) for note in notes] == [
        ("note", True)
    ]


@pytest.mark.thorough
def test_a_change_of_precision_is_named_by_the_plan(tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["blocks"]}
    home = Home(tmp_path / "home")
    assert (
        run(write_recipe(tmp_path, OVERFLOWING, precision), home.root).record.status == "verified"
    )
    assert {row.state for row in forecast(tmp_path / "recipe.yaml", home, (), "host")} == {"hit"}
    write_recipe(tmp_path, OVERFLOWING, precision | {"saturate": True})
    rows = {row.stage: row for row in forecast(tmp_path / "recipe.yaml", home, (), "host")}
    assert rows["export"].state == "hit"
    assert rows["build:ort"].state != "hit"
    assert "build.precision.saturate changed" in rows["build:ort"].reason


@pytest.mark.thorough
def test_a_pattern_that_names_no_module_is_an_error(tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["block.*"]}
    outcome = run(write_recipe(tmp_path, OVERFLOWING, precision), tmp_path / "home")
    (finding,) = found(outcome, "N206")
    assert "did you mean 'blocks.*'" in finding.message
    assert outcome.record.status == "failed"


def test_a_plan_that_leaves_nothing_low_is_an_error(tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": ["**"]}
    outcome = run(write_recipe(tmp_path, OVERFLOWING, precision), tmp_path / "home")
    assert codes(outcome) == {"N207"}


GUARDED = """
import torch

class Normalise(torch.nn.Module):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-12)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Normalise()

    def forward(self, x):
        return self.norm(x)[:, :3]

def build():
    return Net()
"""


@pytest.mark.thorough
def test_an_epsilon_that_vanishes_is_named_with_the_division_it_guards(tmp_path: Path) -> None:
    constant = [{"name": "x", "dtype": "float32", "shape": ["batch", 4], "sample": {"constant": 1}}]
    tolerance = {"tolerance": {"max_abs": 0.05}}  # zeros have no cosine
    recipe = write_recipe(tmp_path, GUARDED, "float16", inputs=constant, verify=tolerance)
    outcome = run(recipe, tmp_path / "home")
    (finding,) = found(outcome, "N203")
    assert finding.place.module == "norm"
    assert "1e-12" in finding.message
    assert finding.remedy is not None
    precision = finding.remedy.change["targets.ort.precision"]
    assert precision == {"default": "float16", "keep_float32": ["norm"]}


LOSING = """
import torch

class Small(torch.nn.Module):
    def forward(self, x):
        return (1 + x * 1e-5) - 1

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.small = Small()
        self.after = torch.nn.Linear(4, 3, bias=False)

    def forward(self, x):
        return self.after(self.small(x)) * 1e4

def build():
    return Net()
"""


def test_a_lost_variance_is_named(tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, LOSING, "float16"), tmp_path / "home")
    (finding,) = found(outcome, "N204")
    assert (finding.severity, finding.place.module) == ("error", "small")
    assert outcome.record.targets[0].headline.startswith("N204")
    # With its variance, the input's influence is gone: not C108 but the rounding is the cause.
    assert codes(outcome) == {"N101", "N204", "N304"}


BERT = bert(seed=1)


@pytest.mark.slow
class TestBert:
    @pytest.mark.thorough
    def test_its_mask_is_beyond_float16_and_a_masked_row_shows_it(
        self, home: Path, tmp_path: Path
    ) -> None:
        outcome = run(write_recipe(tmp_path, "", "float16", **BERT), home)
        assert outcome.record.status == "failed"
        assert evidence(outcome) == "simulated"
        (constant,) = found(outcome, "N201")
        assert constant.is_error
        assert constant.evidence["value"] == float(np.finfo(np.float32).min)
        assert constant.place.tensor == constant.evidence["constant"]
        assert constant.place.module == "encoder.layer.0.attention.self"
        assert constant.place.case == "masked-row"
        (row,) = found(outcome, "N205")
        assert row.place.module == "encoder.layer.0.attention.self"
        assert codes(outcome) == {"N102", "N201", "N205"}
        assert "N201" in outcome.record.targets[0].headline
        assert constant.remedy is not None
        assert constant.remedy.change == {
            "targets.ort.precision": {"default": "float16", "saturate": True}
        }

    def test_saturated_it_verifies_with_its_weights_in_float16(
        self, home: Path, tmp_path: Path
    ) -> None:
        outcome = run(
            write_recipe(tmp_path, "", {"default": "float16", "saturate": True}, **BERT), home
        )
        assert outcome.record.status == "verified"
        assert evidence(outcome) == "simulated"
        assert outcome.record.targets[0].precision == "float16 saturated"
        assert "masked-row" in {
            case.case for case in outcome.record.targets[0].verifications[0].cases
        }
        assert share_of_float16(built(outcome)) >= 0.9
        (note,) = found(outcome, "N201")
        assert (note.severity, note.evidence["saturated"]) == ("note", True)

    @pytest.mark.thorough
    def test_without_a_masked_row_the_mask_is_a_note(self, home: Path, tmp_path: Path) -> None:
        verify = {"tolerance": TOLERANCE, "skip": ["masked-row"]}
        outcome = run(write_recipe(tmp_path, "", "float16", **BERT, verify=verify), home)
        assert [finding.severity for finding in found(outcome, "N201")] == ["note"]


@pytest.mark.thorough
def test_float32_takes_no_part_in_any_of_this(tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, OVERFLOWING, "float32"), tmp_path / "home")
    assert outcome.record.status == "verified"
    assert evidence(outcome) == "device"
    assert dataclasses.astuple(outcome.record.targets[0])[3] == "float32"
    assert {weight.data_type for weight in built(outcome).graph.initializer} <= {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.INT64,
    }

"""Core ML targets whole, in this environment: real conversions, the packages evaluated."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coreml_recipes import package, recipe
from test_low_precision import BERT, codes, evidence, found, run

import convkit
from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.runtimes.coreml.packages.package_metadata import read_metadata
from convkit.worker.mil.package_identity import package_digest

OVERFLOWING = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.constant_(self.product.weight, 60000.0)

    def forward(self, x):
        return torch.tanh(self.product(x) * 1e-6)

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
BESSEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return torch.special.airy_ai(x)

def build():
    return Net()
"""
HASHED = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return (x * 1000).long() * 3_000_000_000 % 1000 + 0.5

def build():
    return Net()
"""
HALF = {"tolerance": {"max_abs": 0.02, "cosine": 0.999}}


def bert(folder: Path, **target: Any) -> Path:
    """Write the recipe of a BERT of one layer."""
    changed = copy.deepcopy(BERT)
    changed["model"]["config"]["overrides"]["num_hidden_layers"] = 1
    return recipe(folder, target=target, **changed)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def plain(home: Path, tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    return run(bert(tmp_path_factory.mktemp("plain")), home)


@pytest.fixture(scope="module")
def half(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunOutcome]:
    path = bert(tmp_path_factory.mktemp("half"), precision="float16", **HALF)
    return path, run(path, home)


@pytest.mark.slow
@pytest.mark.thorough  # the same path as float16 below, without its roundings
class TestFloat32:
    def test_it_is_verified_by_evaluation(self, plain: RunOutcome) -> None:
        assert (plain.record.status, evidence(plain)) == ("verified", "simulated")
        assert {stage.kind for stage in plain.record.stages} == {
            "reference",
            "build",
            "verify",
        }  # no ONNX on the way
        (verification,) = plain.record.targets[0].verifications
        assert verification.providers == ("evaluator of ML programs",)
        assert {"smallest", "largest", "masked-row", "off-typical"} <= {
            case.case for case in verification.cases
        }

    def test_the_package_carries_its_contract_and_what_made_it(self, plain: RunOutcome) -> None:
        texts = read_metadata(package(plain))
        contract = json.loads(texts["convkit.contract"])
        assert [spec["name"] for spec in contract["inputs"]] == [
            "input_ids",
            "attention_mask",
            "token_type_ids",
        ]
        assert texts["com.github.apple.coremltools.version"].startswith("9.")
        assert not any("date" in key for key in texts)

    @pytest.mark.thorough
    def test_a_second_build_gives_the_same_artifact(self, plain: RunOutcome, home: Path) -> None:
        again = run_recipe(
            RunOptions(
                plain.folder / "recipe.yaml", Home(home), toolchain="host", track=False, force=True
            )
        )
        assert found(again, "R101") == []
        assert package_digest(package(again)) == package_digest(package(plain))


@pytest.mark.slow
class TestFloat16:
    def test_the_constant_the_module_and_the_operation_are_named(
        self, half: tuple[Path, RunOutcome]
    ) -> None:
        _, outcome = half
        assert (outcome.record.status, outcome.record.exit_code, evidence(outcome)) == (
            "failed",
            1,
            "simulated",
        )
        (finding,) = found(outcome, "N201")
        assert finding.is_error
        assert finding.evidence["value"] == pytest.approx(float(np.finfo(np.float32).min))
        assert finding.place.module == "encoder.layer.0.attention.self"
        assert "softmax" in finding.message
        assert "returns NaN" in " ".join(finding.chain)
        assert finding.remedy is not None
        assert finding.remedy.change == {
            "targets.coreml.precision": {"default": "float16", "saturate": True}
        }

    def test_masked_rows_are_counted(self, half: tuple[Path, RunOutcome]) -> None:
        (finding,) = found(half[1], "N205")
        assert finding.evidence["rows"] > 0

    @pytest.mark.thorough
    def test_repair_ends_green(self, half: tuple[Path, RunOutcome], home: Path) -> None:
        outcome = repair_recipe(RunOptions(half[0], Home(home), toolchain="host", track=False))
        assert outcome.repaired, outcome.ending
        assert outcome.last.record.status == "verified"
        cases = {case.case: case for case in outcome.last.record.targets[0].verifications[0].cases}
        assert cases["masked-row"].outputs[0].metrics.max_abs <= HALF["tolerance"]["max_abs"]

    @pytest.mark.thorough
    def test_auto_says_what_it_keeps(self, home: Path, tmp_path: Path) -> None:
        precision = {"default": "float16", "keep_float32": "auto"}
        outcome = run(bert(tmp_path, precision=precision, tolerance={"max_abs": 0.002}), home)
        assert outcome.record.status == "verified"
        (finding,) = found(outcome, "N208")
        plan = outcome.record.targets[0].plan
        assert plan is not None
        assert finding.evidence["keep_float32"] == list(plan.precision.patterns)
        kept = [row for row in plan.modules if row.float32]
        assert kept
        assert sum(row.low_weights for row in plan.modules) > sum(
            row.float32_weights for row in plan.modules
        )


@pytest.mark.slow
class TestOverflow:
    @pytest.mark.thorough
    def test_it_is_named_though_what_follows_absorbs_it_and_repaired(
        self, home: Path, tmp_path: Path
    ) -> None:
        """tanh of infinity is one: the outputs are finite, and wrong."""
        path = recipe(tmp_path, OVERFLOWING, target={"precision": "float16"})
        outcome = repair_recipe(RunOptions(path, Home(home), toolchain="host", track=False))
        assert outcome.first.status == "failed"
        (finding,) = [finding for finding in outcome.first.findings if finding.code == "N202"]
        assert finding.place.module == "blocks.0.product"
        assert "absorb" in finding.message
        headroom = [finding for finding in outcome.first.findings if finding.code == "N210"]
        assert headroom, "float32's ranges foretell it"
        assert headroom[0].place.module == "blocks.0.product"
        assert outcome.repaired, outcome.ending


@pytest.mark.slow
@pytest.mark.thorough
def test_a_searched_precision_of_a_model_with_names_that_core_ml_changes(
    home: Path, tmp_path: Path
) -> None:
    precision = {"default": "float16", "keep_float32": "auto"}
    given = {"name": "x.0", "from": "x", "dtype": "float32", "shape": ["batch", 4]}
    given["sample"] = {"uniform": [0.5, 1]}
    outputs = [{"name": "y.0", "dtype": "float32", "shape": ["batch", 3]}]
    target = {"precision": precision} | HALF
    outcome = run(
        recipe(tmp_path, OVERFLOWING, target=target, inputs=[given], outputs=outputs), home
    )
    assert outcome.record.status == "verified", outcome.record.findings
    (note,) = found(outcome, "C303")
    assert note.evidence["names"] == {"x.0": "x_0", "y.0": "y_0"}
    session = convkit.load(package(outcome))
    assert [each.name for each in session.inputs] == ["x.0"]
    x = np.full((1, 4), 0.7, np.float32)
    assert session(**{"x.0": x})["y.0"].shape == (1, 3)


@pytest.mark.slow
@pytest.mark.thorough
def test_an_operator_that_nothing_translates_is_named(home: Path, tmp_path: Path) -> None:
    outcome = run(
        recipe(
            tmp_path, BESSEL, outputs=[{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
        ),
        home,
    )
    assert outcome.record.exit_code != 0
    assert "airy_ai" in " ".join(finding.message for finding in outcome.record.findings)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_program_that_differs_in_float32_is_explained_and_no_precision_is_searched(
    home: Path, tmp_path: Path
) -> None:
    auto = {"default": "float16", "keep_float32": "auto"}
    targets = {
        "plain": {"runtime": "coreml"},
        "low": {"runtime": "coreml", "precision": auto},
        "fixed": {"runtime": "coreml", "precision": "float16"},
    }
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    outcome = run(recipe(tmp_path, HASHED, targets=targets, outputs=outputs), home)
    assert [target.status for target in outcome.record.targets] == ["failed"] * 3
    plain, low, fixed = outcome.record.targets
    leading = plain.verifications[0].findings[0]
    assert (leading.code, leading.place.source) == ("T108", "model.py:6")
    assert [finding.code for finding in low.findings if finding.is_error] == ["T108"]
    assert low.plan is None or not low.plan.rounds
    # A precision that was not searched is not blamed for what is wrong in float32 either.
    assert fixed.headline.startswith("T108")


@pytest.mark.slow
def test_inputs_beyond_int32_are_named_before_a_precision_is_searched(
    home: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "moments.npy", np.array([1_767_225_600_000, 5], np.int64))
    low = {"precision": {"default": "float16", "keep_float32": "auto"}}
    inputs = [{"name": "x", "dtype": "int64", "shape": [2], "sample": {"file": "moments.npy"}}]
    outputs = [{"name": "y", "dtype": "float32", "shape": [2]}]
    code = HASHED.replace("(x * 1000).long() * 3_000_000_000 % 1000 + 0.5", "x % 1000 + 0.5")
    path = recipe(tmp_path, code, target=low, axes={}, inputs=inputs, outputs=outputs)
    (target,) = run(path, home).record.targets
    assert target.status == "failed"
    assert [finding.code for finding in target.findings if finding.is_error] == ["T108"]


@pytest.mark.slow
@pytest.mark.thorough
def test_what_is_traced_on_an_example_or_cannot_be_evaluated_is_told(
    home: Path, tmp_path: Path
) -> None:
    """A branch that every input takes, and noise that reaches no output."""
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    branching = BESSEL.replace(
        "return torch.special.airy_ai(x)", "return x * 2 if x.sum() > -1e9 else x"
    )
    outcome = run(recipe(tmp_path / "branching", branching, outputs=outputs), home)
    (traced,) = found(outcome, "E212")
    assert traced.severity == "note"
    assert outcome.record.status == "verified"
    noisy = BESSEL.replace("torch.special.airy_ai(x)", "x + 0 * torch.randn_like(x)")
    outcome = run(recipe(tmp_path / "noisy", noisy, outputs=outputs), home)
    (unknown,) = found(outcome, "E211")
    assert unknown.evidence["operations"] == ["random_normal"]
    assert outcome.record.status != "verified"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_plan_that_keeps_everything_is_not_float16(home: Path, tmp_path: Path) -> None:
    precision = {"default": "float16", "keep_float32": [".", "before", "blocks", "after"]}
    outcome = run(recipe(tmp_path, OVERFLOWING, target={"precision": precision}), home)
    assert outcome.record.status == "failed"
    assert "N207" in codes(outcome)


@pytest.mark.slow
@pytest.mark.thorough
def test_patterns_that_match_no_module_are_named(home: Path, tmp_path: Path) -> None:
    target = {
        "precision": {"default": "float16", "keep_float32": ["befor", "blocks.*.product"]},
        "compression": {"weights": "int8", "keep": ["after", "block.0"]},
    }
    outcome = run(recipe(tmp_path, OVERFLOWING, target=target), home)
    assert outcome.record.status == "failed"
    (built,) = (stage for stage in outcome.record.stages if stage.kind == "build")
    assert [each.message for each in built.findings if each.code == "N206"] == [
        "keep_float32: 'befor' matches no module of the model; did you mean 'before'?",
        "compression.keep: 'block.0' matches no module of the model; did you mean 'blocks.0'?",
    ]


@pytest.mark.slow
@pytest.mark.thorough
def test_enumerated_shapes_leave_other_sizes_out_and_say_so(home: Path, tmp_path: Path) -> None:
    outcome = run(recipe(tmp_path, OVERFLOWING, target={"shapes": "enumerated"}), home)
    assert outcome.record.status == "verified"
    (verification,) = outcome.record.targets[0].verifications
    assert {"smallest", "typical", "largest"} <= {case.case for case in verification.cases}
    assert any("enumerates" in omitted.reason for omitted in verification.omitted)


@pytest.mark.slow
@pytest.mark.thorough
def test_two_builds_under_other_hash_seeds_in_other_folders_are_equal_byte_for_byte(
    tmp_path: Path,
) -> None:
    digests = []
    for seed in ("1", "2"):
        folder = tmp_path / f"here-{seed}"
        path = recipe(folder, OVERFLOWING)
        environment = os.environ | {"PYTHONHASHSEED": seed, "CONVKIT_HOME": str(folder / "home")}
        command = [
            str(Path(sys.executable).with_name("convkit")),
            "run",
            str(path),
            "--toolchain",
            "host",
            "--no-track",
        ]
        subprocess.run(
            command,
            check=True,
            env=environment,
            cwd=Path(convkit.__file__).parents[1],
            capture_output=True,
        )
        (built,) = (folder / "home").rglob("models/coreml/model.mlpackage")
        files = sorted(file for file in built.rglob("*") if file.is_file())
        digests.append([(file.relative_to(built).as_posix(), file.read_bytes()) for file in files])
    assert digests[0] == digests[1]

"""Audits of someone else's export against its original, and what runs where a device is absent."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from command_line import convkit
from small_runs import MODEL, run, tensors, write_recipe

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.toolchain.device_detection import find_device
from convkit.protocol.errors import EXIT_FAILED

Forward = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], Any]

# How somebody else's export went wrong, the code and the input that must be named.
BAD_EXPORTS: dict[str, tuple[Forward, str, str]] = {
    "swapped": (lambda model, ids, mask: model(mask, ids), "C110", "mask"),
    "merged": (lambda model, ids, mask: model(ids, ids) + 0 * mask.unsqueeze(-1), "C109", "mask"),
    "dead": (
        lambda model, ids, mask: model(ids, torch.ones_like(mask)) + 0 * mask.unsqueeze(-1),
        "C108",
        "mask",
    ),
    "baked-in axis": (lambda model, ids, mask: model(ids, mask).reshape(3, 6, 3), "C206", "y"),
}


def sound(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return model(ids, mask)


class Elsewhere(torch.nn.Module):
    """A model as somebody else called it for an export."""

    def __init__(self, model: torch.nn.Module, forward: Forward) -> None:
        super().__init__()
        self.inner, self._forward = model, forward

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return self._forward(self.inner, ids, mask)


def export(file: Path, code: str, forward: Forward, names: tuple[str, ...]) -> None:
    defined: dict[str, Any] = {}
    exec(code, defined)
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(3)
        model = Elsewhere(defined["build"](), forward).eval()
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            model,
            (torch.randint(0, 10, (3, 6)), torch.ones(3, 6, dtype=torch.int64)),
            file,
            input_names=["ids", "mask"],
            output_names=list(names),
            dynamo=False,
            opset_version=17,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in ("ids", "mask", *names)},
        )


def audit_recipe(
    folder: Path, forward: Forward, code: str = MODEL, names: tuple[str, ...] = ("y",)
) -> Path:
    """Write a recipe for an ONNX file that was exported elsewhere, and export it so."""
    (folder / "model.py").write_text(code)
    export(folder / "given.onnx", code, forward, names)
    return write_recipe(
        folder,
        code,
        model={"onnx": "given.onnx"},
        original={"factory": {"call": "model.py:build", "seed": 3}},
        inputs=tensors(ids={"sample": {"integers": [0, 2]}})["inputs"],
        export={"opset": 17},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault == "swapped" else [pytest.mark.thorough])
        for fault in BAD_EXPORTS
    ],
)
def test_somebody_else_s_export_is_audited_against_its_original(tmp_path: Path, fault: str) -> None:
    forward, code, name = BAD_EXPORTS[fault]
    outcome = run(audit_recipe(tmp_path, forward), tmp_path / "home")
    found = [finding for finding in outcome.record.findings if finding.code == code]
    assert found, [f"{finding.code} {finding.message}" for finding in outcome.record.findings]
    assert name in found[0].message
    assert outcome.record.exit_code == EXIT_FAILED
    assert outcome.record.targets[0].headline.startswith(code)


TWO_OUTPUTS = MODEL.replace("return torch.tanh(", "return dict(y=torch.tanh(").replace(
    "unsqueeze(-1)))", "unsqueeze(-1))), z=torch.sigmoid(self.embedding(ids)[..., :3]))"
)


@pytest.mark.slow
def test_exchanged_outputs_are_named(tmp_path: Path) -> None:
    recipe = audit_recipe(
        tmp_path,
        lambda model, ids, mask: (model(ids, mask)["z"], model(ids, mask)["y"]),
        TWO_OUTPUTS,
        ("y", "z"),
    )
    outputs = [
        {"name": name, "dtype": "float32", "shape": ["batch", "length", 3]} for name in ("y", "z")
    ]
    dump = yaml.safe_load(recipe.read_text())
    recipe.write_text(yaml.safe_dump(dump | {"outputs": outputs}, sort_keys=False))
    outcome = run(recipe, tmp_path / "home")
    assert outcome.record.exit_code == EXIT_FAILED
    assert outcome.record.targets[0].headline.startswith("C208")


def test_a_good_export_from_elsewhere_equals_its_original(tmp_path: Path) -> None:
    outcome = run(audit_recipe(tmp_path, sound), tmp_path / "home")
    assert outcome.record.status == "verified"
    assert not [finding for finding in outcome.record.findings if finding.severity != "note"]


@pytest.mark.network
@pytest.mark.skipif(
    find_device("cuda").there, reason="this machine has the device that must be absent"
)
@pytest.mark.thorough
def test_a_target_whose_device_is_absent_is_skipped_and_never_green(tmp_path: Path) -> None:
    audit_recipe(tmp_path, sound)
    recipe = write_recipe(  # an ONNX file: its isolated environments are small
        tmp_path,
        model={"onnx": "given.onnx"},
        targets={"gpu": {"runtime": "onnxruntime", "device": "cuda"}},
    )
    done = convkit(
        "run", recipe, "--home", tmp_path / "home", "--only", "gpu", "--no-track", "--strict"
    )
    output = done.stdout + done.stderr
    assert done.returncode == 4, output
    assert "skipped" in output
    assert "E101" in output
    assert "✓ verified" not in output
    assert "1 verified" not in output


@pytest.mark.network
@pytest.mark.thorough
def test_a_run_in_isolated_environments_leaves_the_versions_of_each_stage(tmp_path: Path) -> None:
    audit_recipe(tmp_path, sound)
    recipe = write_recipe(tmp_path, model={"onnx": "given.onnx"}, export={"opset": 17})
    outcome = run_recipe(RunOptions(recipe, Home(tmp_path / "home"), track=False))
    assert outcome.record.status == "verified"
    locks = {path.name: path.read_text() for path in (outcome.folder / "locks").iterdir()}
    assert set(locks) == {"export.txt", "reference.txt", "build-ort.txt", "verify-ort.txt"}
    assert "onnxruntime==1.31" in locks["verify-ort.txt"]
    assert "torch" not in locks["verify-ort.txt"]
    verify = next(stage for stage in outcome.record.stages if stage.kind == "verify")
    assert f"onnxruntime=={verify.versions['onnxruntime']}" in locks["verify-ort.txt"]
    assert "://" not in "".join(locks.values())  # no index address
    again = run_recipe(RunOptions(recipe, Home(tmp_path / "home"), track=False))
    assert again.up_to_date

"""`convkit diagnose --reproducer`: a script that was run without convkit and shows the fault."""

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.diagnosis.reproducer_command import _ending, failed_stage
from convkit.host.record.run_record import StageReport
from convkit.protocol.errors import UsageError
from convkit.protocol.findings.finding import Finding

_MODULE = """\
import torch


class Enlarged(torch.nn.Module):
    def forward(self, image):
        wide = torch.nn.functional.interpolate(image, size=64, mode="nearest")
        return torch.tanh(wide) * 2


def build():
    return Enlarged()
"""
_RECIPE = """\
schema: 1
name: enlarged
model: {factory: "model.py:build"}
tools: {python: "3.11"}
axes: {batch: {min: 1, typical: 2, max: 3}}
inputs: [{name: image, dtype: float32, shape: [batch, 1, 26]}]
outputs: [{name: wide, dtype: float32, shape: [batch, 1, 64]}]
verify: {tolerance: {max_abs: 1.0e-4}}
targets: {ort: {runtime: onnxruntime}}
"""


def test_a_fault_of_a_run_becomes_a_script(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_MODULE)
    (tmp_path / "recipe.yaml").write_text(_RECIPE)
    destination = tmp_path / "scripts"
    command = ["diagnose", str(tmp_path / "recipe.yaml"), "--toolchain", "host"]
    command += ["--home", str(tmp_path / "home"), "--reproducer", str(destination)]
    answer = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert answer.exit_code == 1, answer.output
    assert "it shows the fault: Not equal to tolerance" in answer.output
    text = (destination / "ort" / "reproduce.py").read_text()
    assert text.count("\n") < 40
    assert "convkit" not in text
    assert "computes another result than expected: Resize." in text


def test_a_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(_MODULE)
    (tmp_path / "recipe.yaml").write_text(_RECIPE)
    command = ["diagnose", str(tmp_path / "recipe.yaml"), "--reproducer"]
    answer = CliRunner().invoke(app, [*command, str(tmp_path / "model.py")])
    assert isinstance(answer.exception, UsageError)
    assert "is a file. Name a folder" in str(answer.exception)


@pytest.mark.parametrize(
    ("code", "errors", "shown"),
    [
        (
            1,
            "AssertionError: \nNot equal to tolerance rtol=0.001\nMismatched elements: 3 / 12",
            True,
        ),
        (1, "RuntimeError: unsupported", True),
        (1, "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1", True),
        (1, "ModuleNotFoundError: No module named 'onnx'", False),
        (1, "", False),
        (0, "", False),
        (0, "UserWarning: Not equal to tolerance", False),
        (-11, "", True),
    ],
)
def test_only_the_fault_itself_counts_as_shown(code: int, errors: str, shown: bool) -> None:
    ended = subprocess.CompletedProcess([], code, "", errors)
    assert _ending(ended)[0] is shown


def test_an_export_that_found_an_error_has_no_graph_to_search() -> None:
    refused = Finding("E305", "torch.export cannot decide")
    warned = Finding("N514", "writes to its input", severity="warning")
    build = StageReport("build:ort", "build", "key", "broken", "")

    def stage(*findings: Finding) -> StageReport:
        return StageReport("export", "export", "key", "done", "", findings=findings)

    assert failed_stage([stage(refused), build], "export", "ort") == "export"
    assert failed_stage([stage(warned), build], "export", "ort") == "build"
    assert failed_stage([stage(warned)], "export", "ort") is None

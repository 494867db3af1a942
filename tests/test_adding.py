"""CONTRIBUTING's steps to add an exporter, a kind of quantization and a finding, followed in a copy
of convkit.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from copied_package import Command, copy_package, replace_once, steps
from shared_keys import FACTORY

MODEL = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
"""
RECIPE = FACTORY | {
    "export": {"exporter": "traced", "opset": 17},
    "inputs": [{"name": "input", "dtype": "float32", "shape": ["batch", 8]}],
    "targets": {
        "ort": {"runtime": "onnxruntime"},
        "ort-uint8": {
            "runtime": "onnxruntime",
            "precision": {"quantize": "dynamic-uint8"},
            "tolerance": {"cosine": 0.99},
        },
    },
}

PROTOCOL = "convkit/protocol/messages/model_request.py"
SELECTION = "convkit/worker/precision/quantization/node_selection.py"
QUANTIZERS = "convkit/worker/precision/quantization/quantizers.py"

EXPORTER = '''
"""The older exporter, for odd opsets only."""

import onnx_ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.exporters import torchscript_exporter as torchscript
from convkit.worker.exporters.export_job import ExportJob, UnexportableError


def export(job: ExportJob) -> onnx_ir.Model:
    if job.opset % 2 == 0:
        remedy = Remedy("Choose an odd opset.", {"export.opset": job.opset - 1})
        found = Finding("C190", f"opset {job.opset} is even", Place(), {}, remedy)
        raise UnexportableError([found])
    model = torchscript.export(job)
    model.metadata_props["made_by"] = "traced"
    return model
'''
FINDING = """
[C190]
title = "the opset is even"
meaning = "This exporter writes odd opsets only."
missed = "Nothing else has the exporter."
remedy = "Choose an odd opset."
"""
UNSIGNED = """

def _unsigned(prepared: Path, destination: Path, exclude: Sequence[str]) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        prepared,
        destination,
        op_types_to_quantize=quantized_operators("dynamic-uint8"),
        weight_type=QuantType.QUInt8,
        nodes_to_exclude=list(exclude),
        use_external_data_format=True,
    )
"""


class Extended:
    """A copy of convkit to which something was added; `touched` are the files of each addition."""

    def __init__(self, folder: Path) -> None:
        self.package = copy_package(folder)
        self.touched: dict[str, set[str]] = {}

    def file(self, kind: str, path: str) -> Path:
        """Return a file of the copy that an addition touches."""
        self.touched.setdefault(kind, set()).add(path)
        return self.package.parent / path

    def add_exporter(self) -> None:
        new = self.file("exporter", "convkit/worker/exporters/traced.py")
        new.write_text(EXPORTER, encoding="utf-8")
        registry = self.file("exporter", "convkit/worker/exporters/exporter_registry.py")
        replace_once(
            registry, "    torchscript_exporter,\n)", "    torchscript_exporter,\n    traced,\n)"
        )
        row = '    "torch": torch_exporter,\n'
        replace_once(registry, row, f'{row}    "traced": traced,\n')
        replace_once(
            self.file("exporter", PROTOCOL),
            '"torchscript", "auto"]',
            '"torchscript", "auto", "traced"]',
        )
        replace_once(
            self.file("exporter", "convkit/host/toolchain/versions/stage_requirements.py"),
            '    "export torch": _TORCH,\n',
            '    "export torch": _TORCH,\n    "export traced": _TORCH,\n',
        )

    def add_quantization(self) -> None:
        replace_once(
            self.file("quantization", PROTOCOL),
            '"int4-weights"]',
            '"int4-weights", "dynamic-uint8"]',
        )
        replace_once(
            self.file("quantization", SELECTION),
            '    "int4-weights": {"MatMul"',
            '    "dynamic-uint8": {"MatMul": 1, "Gemm": 1},\n    "int4-weights": {"MatMul"',
        )
        quantizers = self.file("quantization", QUANTIZERS)
        replace_once(
            quantizers,
            '                case "int4-weights":\n',
            '                case "dynamic-uint8":\n'
            "                    _unsigned(prepared.file, destination, exclude)\n"
            '                case "int4-weights":\n',
        )
        quantizers.write_text(quantizers.read_text(encoding="utf-8") + UNSIGNED, encoding="utf-8")

    def add_finding(self) -> None:
        rows = self.file("finding", "convkit/host/findings/codes/contract.toml")
        rows.write_text(rows.read_text(encoding="utf-8") + FINDING, encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Extended:
    extended = Extended(tmp_path_factory.mktemp("copy"))
    extended.add_exporter()
    extended.add_quantization()
    extended.add_finding()
    return extended


@pytest.fixture(scope="module")
def command(extended: Extended, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(extended.package, tmp_path_factory.mktemp("home"))


def written(folder: Path, **changes: Any) -> Path:
    (folder / "model.py").write_text(MODEL)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | changes, sort_keys=False))
    return recipe


def test_contributing_names_exactly_the_files(extended: Extended) -> None:
    exporter = {path.replace("<name>", "traced") for path in steps("To add an exporter")}
    assert exporter == extended.touched["exporter"]
    assert steps("To add a kind of quantization") == extended.touched["quantization"]
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert "`convkit/host/findings/codes/`" in page.partition("## To add a finding")[2]
    assert extended.touched["finding"] == {"convkit/host/findings/codes/contract.toml"}


@pytest.mark.slow
@pytest.mark.thorough
def test_a_recipe_runs_with_the_new_exporter_and_quantization(
    command: Command, tmp_path: Path
) -> None:
    done = command("run", written(tmp_path), "--toolchain", "host")
    assert done.returncode == 0, done.stdout + done.stderr
    [result] = command.home.glob("results/small/*/result.json")
    targets = json.loads(result.read_text())["targets"]
    assert [target["status"] for target in targets] == ["verified", "verified"]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_new_finding_is_reported_and_explained(command: Command, tmp_path: Path) -> None:
    recipe = written(tmp_path, export={"exporter": "traced", "opset": 18})
    done = command("run", recipe, "--toolchain", "host")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "error C190" in done.stdout
    assert "opset 18 is even" in done.stdout
    assert "This exporter writes odd opsets only." in command("explain", "C190").stdout

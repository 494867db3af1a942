"""Audits of someone else's export against its original, and what runs where a device is absent."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_runs import MODEL, convkit, run, tensors, write_recipe

from convkit.errors import EXIT_FAILED
from convkit.execute.run import RunOptions, run_recipe
from convkit.home import Home
from convkit.toolchain.devices import find_device

EXPORTED = """
import torch, sys
sys.path.insert(0, {folder!r})
from model import build
torch.manual_seed(3)
model = build().eval()
ids, mask = torch.randint(0, 10, (3, 6)), torch.ones(3, 6, dtype=torch.int64)
class Export(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, ids, mask):
        {body}
names = {names!r}
axes = {{name: {{0: "batch", 1: "length"}} for name in ["ids", "mask", *names]}}
torch.onnx.export(Export().eval(), (ids, mask), {file!r},
    input_names=["ids", "mask"], output_names=names,
    dynamo=False, opset_version=17, dynamic_axes=axes)
"""

# How somebody else's export went wrong, the code and the input that must be named.
BAD_EXPORTS = {
    "swapped": ("return self.inner(mask, ids)", "C110", "mask"),
    "merged": ("return self.inner(ids, ids) + 0 * mask.unsqueeze(-1)", "C109", "mask"),
    "dead": (
        "return self.inner(ids, torch.ones_like(mask)) + 0 * mask.unsqueeze(-1)",
        "C108",
        "mask",
    ),
    "baked-in axis": ("return self.inner(ids, mask).reshape(3, 6, 3)", "C206", "y"),
}


def audit_recipe(
    folder: Path, body: str, code: str = MODEL, names: tuple[str, ...] = ("y",)
) -> Path:
    """Write a recipe for an ONNX file that was exported elsewhere, and export it so."""
    (folder / "model.py").write_text(code)
    script = EXPORTED.format(
        folder=str(folder), body=body, file=str(folder / "given.onnx"), names=list(names)
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True)
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
    body, code, name = BAD_EXPORTS[fault]
    outcome = run(audit_recipe(tmp_path, body), tmp_path / "home")
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
        "return self.inner(ids, mask)['z'], self.inner(ids, mask)['y']",
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
    outcome = run(audit_recipe(tmp_path, "return self.inner(ids, mask)"), tmp_path / "home")
    assert outcome.record.status == "verified"
    assert not [finding for finding in outcome.record.findings if finding.severity != "note"]


@pytest.mark.network
@pytest.mark.skipif(
    find_device("cuda").there, reason="this machine has the device that must be absent"
)
def test_a_target_whose_device_is_absent_is_skipped_and_never_green(tmp_path: Path) -> None:
    audit_recipe(tmp_path, "return self.inner(ids, mask)")
    recipe = write_recipe(  # an ONNX file: its isolated environments are small
        tmp_path,
        model={"onnx": "given.onnx"},
        targets={"gpu": {"runtime": "onnxruntime", "device": "cuda"}},
    )
    process = convkit(
        "run", recipe, "--home", tmp_path / "home", "--only", "gpu", "--no-track", "--strict"
    )
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 4, output
    assert "skipped" in output
    assert "E101" in output
    assert "✓ verified" not in output
    assert "1 verified" not in output


@pytest.mark.network
@pytest.mark.thorough
def test_a_run_in_isolated_environments_leaves_the_versions_of_each_stage(tmp_path: Path) -> None:
    audit_recipe(tmp_path, "return self.inner(ids, mask)")
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

"""`evaluate:` whole: an ONNX file beside the torch model it claims to be, on the user's rows."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from PIL import Image

from convkit.host.home import Home
from convkit.host.processes.progress_events import Listener, SilentListener, StageEnd
from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.record.run_summary import located_findings
from convkit.host.run.rejudging import rejudge
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome

# The class is the sign of the first input; both logits rest on a large common part.
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))

    def forward(self, x):
        return x @ self.weight + 10.0

def build():
    return Net()
"""


def write_onnx(path: Path, shift: tuple[float, float]) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[batch, 2] x) => (float[batch, 2] y)
    <float[2, 2] w = {{1.0, -1.0, 0.0, 0.0}}, float[2] b = {{{10 + shift[0]}, {10 + shift[1]}}}>
    {{
        p = MatMul(x, w)
        y = Add(p, b)
    }}
    """
    onnx.save(onnx.parser.parse_model(text), path)


def rows(count: int, near: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose class is clear, except for the first `near`, barely of class 0."""
    first = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    first[:near] = 0.01
    values = np.stack([first, np.zeros(count)], axis=1).astype(np.float32)
    return values, (first < 0).astype(np.int64)


def run(
    folder: Path, shift: tuple[float, float], count: int, near: int,
    target: dict[str, Any] | None = None, suffix: str = ".npz",
    listener: Listener | None = None, **targets: Any,
) -> RunOutcome:  # fmt: skip
    values, labels = rows(count, near)
    data = folder / f"rows{suffix}"
    if suffix == ".npz":
        np.savez(data, x=values, label=labels)
    else:
        lines = [json.dumps({"x": x.tolist(), "label": int(label)})
                 for x, label in zip(values, labels, strict=True)]  # fmt: skip
        data.write_text("\n".join(lines))
    (folder / "model.py").write_text(MODEL)
    write_onnx(folder / "model.onnx", shift)
    asked = {"data": data.name, "inputs": {"x": "x"}, "labels": "label", "metric": "accuracy"}
    recipe = {
        "schema": 1,
        "name": "task",
        "model": {"onnx": "model.onnx"},
        "original": {"factory": {"call": "model.py:build"}},
        "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
        "axes": {"batch": {"min": 1, "typical": 8, "max": 16}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 2]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 2]}],
        "evaluate": asked | {"max_drop": 0.01},
        "targets": {"ort": {"runtime": "onnxruntime"} | (target or {})} | targets,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    home = Home(folder / "home")
    return run_recipe(RunOptions(path, home, toolchain="host", track=False), listener)


def cosine(outcome: RunOutcome) -> float:
    (verification,) = outcome.record.targets[0].verifications
    return min(out.metrics.cosine for case in verification.cases for out in case.outputs)


def codes(outcome: RunOutcome) -> list[str]:
    return [finding.code for finding in outcome.record.targets[0].verifications[0].findings]


class Ends(SilentListener):
    def __init__(self) -> None:
        self.ends: dict[str, StageEnd] = {}

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        self.ends[stage] = status


def test_a_build_of_cosine_0_999_that_loses_accuracy_fails(tmp_path: Path) -> None:
    lenient = {"runtime": "onnxruntime", "max_drop": 0.2}
    outcome = run(
        tmp_path, (-0.03, 0.03), 400, 30, {"tolerance": {"cosine": 0.999}}, lenient=lenient
    )
    (verification,) = outcome.record.targets[0].verifications
    assert cosine(outcome) > 0.999
    assert all(case.passed for case in verification.cases)
    assert (outcome.record.targets[0].status, codes(outcome)) == ("failed", ["N701"])
    assert verification.decided_by == "tolerance and task metric"
    assert verification.evaluation.drop == pytest.approx(30 / 400)
    assert verification.evaluation.low > 0.01
    assert verification.evaluation.disagreed == 30
    assert outcome.record.targets[1].status == "verified"  # it may lose a fifth
    assert "row 0: 1, original 0, label 0" in verification.leading.evidence["disagreements"]


@pytest.mark.thorough
def test_a_build_of_cosine_0_97_that_loses_nothing_passes(tmp_path: Path) -> None:
    progress = Ends()
    outcome = run(tmp_path, (-17.0, -17.0), 400, 30, suffix=".jsonl", listener=progress)
    (verification,) = outcome.record.targets[0].verifications
    assert cosine(outcome) < 0.97
    assert (outcome.record.status, codes(outcome)) == ("verified", [])
    # Nothing explains a difference that passes: not the run, nor the progress while it went on.
    assert any(stage.findings for stage in outcome.record.stages if stage.kind == "verify")
    assert located_findings(outcome.record) == outcome.record.findings == ()
    assert progress.ends["verify:ort"] == "done"
    assert verification.decided_by == "task metric"
    assert verification.headline.startswith("accuracy 1, original 1")
    # Judged again without running anything; then by a tolerance that somebody insists on.
    assert rejudge(outcome.folder, None).status == "verified"
    assert rejudge(outcome.folder, Tolerance(cosine=0.999)).status == "failed"


@pytest.mark.thorough
def test_too_few_rows_neither_pass_nor_fail(tmp_path: Path) -> None:
    outcome = run(tmp_path, (-0.03, 0.03), 20, 1)
    assert outcome.record.targets[0].status == "unproven"
    assert codes(outcome) == ["N702"]
    assert "the rows cannot tell" in outcome.record.targets[0].headline


PHOTO_MODEL = """
import numpy as np
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(3, 2, bias=False)
        self.head.weight.data = torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])

    def forward(self, pixels):
        return self.head(pixels.mean((2, 3)))

def build():
    return Net()

def prepare(image):
    return (image / np.float32(255)).transpose(2, 0, 1).astype(np.float32)
"""


@pytest.mark.thorough
def test_a_folder_of_images_is_scored_and_its_content_is_part_of_the_keys(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name, channel in (("green", 1), ("red", 0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = draw.integers(0, 100, (8, 8, 3), dtype=np.uint8)
            pixels[..., channel] += 120
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photo_model.py").write_text(PHOTO_MODEL)
    pixels = {
        "name": "pixels",
        "dtype": "float32",
        "shape": ["batch", 3, 8, 8],
        "sample": {"uniform": [0, 1]},
        "preprocess": {
            "processor": {"call": "photo_model.py:prepare"},
            "image": {"scale": "1/255"},
        },
    }
    recipe = {
        "schema": 1,
        "name": "photos",
        "model": {"factory": "photo_model.py:build"},
        "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
        "axes": {"batch": {"min": 1, "typical": 8, "max": 16}},
        "inputs": [pixels],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": ["batch", 2]}],
        "evaluate": {
            "data": "photos/",
            "inputs": {"pixels": "image"},
            "labels": "label",
            "metric": "accuracy",
            "max_drop": 0.0,
        },
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    options = RunOptions(path, Home(tmp_path / "home"), toolchain="host", track=False)
    outcome = run_recipe(options)
    (verification,) = outcome.record.targets[0].verifications
    # The model's first class is red, the folder's is green.
    assert verification.headline.startswith("accuracy 0, original 0")
    assert outcome.record.status == "verified"
    (tmp_path / "photos" / "red").rename(tmp_path / "photos" / "a red one")
    again = run_recipe(options)
    (verification,) = again.record.targets[0].verifications
    assert verification.headline.startswith("accuracy 1, original 1")

"""A draft, and the targets that people convert for: nothing else is written."""

from pathlib import Path

import pytest

from convkit.host.draft.init_command import Drafting, draft
from convkit.host.draft.measured_limits import write_limits
from convkit.host.home import Home
from convkit.host.recipe.keys.low_precision_types import usual_nrmse
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.head = torch.nn.Linear(16, 6)

    def forward(self, image):
        image = torch.relu(self.second(torch.relu(self.first(image))))
        return 50 * self.head(image.mean((2, 3)))


def build():
    return Net().eval()
"""
OTHERS = """
  ort-float16: {runtime: onnxruntime, precision: {default: float16, keep_float32: auto}}
  ort-int8: {runtime: onnxruntime, precision: {quantize: dynamic-int8}}
  openvino: {runtime: openvino}
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_the_limits_of_a_draft_leave_other_precisions_their_own(tmp_path: Path) -> None:
    """What was measured in float32 (about 1e-5 of values of 100) is below float16's resolution."""
    (tmp_path / "model.py").write_text(MODEL)
    recipe = tmp_path / "recipe.yaml"
    home = Home(tmp_path / "home")
    asked = Drafting(f"{tmp_path / 'model.py'}:build", destination=recipe)
    recipe.write_text(draft(asked, home, print, toolchain="host") + OTHERS.lstrip("\n"))
    record = run_recipe(RunOptions(recipe, home, toolchain="host", track=False)).record
    assert {target.name: target.status for target in record.targets} == {
        "ort-cpu": "verified",
        "ort-float16": "verified",
        "ort-int8": "verified",
        "openvino": "verified",
    }
    (converted,) = (stage for stage in record.stages if stage.id == "precision:ort-float16")
    assert "N207" not in {finding.code for finding in converted.findings}, "nothing is in float16"


@pytest.mark.slow
def test_measured_limits_hold_for_their_type_alone(tmp_path: Path) -> None:
    """What was measured replaces what the type allows; limits of float32 stay as drafted."""
    (tmp_path / "model.py").write_text(MODEL)
    recipe = tmp_path / "recipe.yaml"
    home = Home(tmp_path / "home")
    asked = Drafting(
        f"{tmp_path / 'model.py'}:build",
        destination=recipe,
        targets=("onnxruntime", "onnxruntime-float16,ort-int8", "onnxruntime-dynamic-int8"),
    )
    recipe.write_text(draft(asked, home, print, toolchain="host"))
    before = load_recipe(recipe).recipe.verify.by_precision
    options = RunOptions(recipe, home, toolchain="host", track=False)
    said = list(write_limits(recipe, run_recipe(options).record))
    assert len(said) == 2
    limits = load_recipe(recipe).recipe.verify.by_precision
    assert limits["float32"] == before["float32"]
    allowed = {
        kind: limits[kind].outputs["output"].model_dump()["nrmse"]
        for kind in limits
        if kind != "float32"
    }
    assert set(allowed) == {"float16", "int8"}
    assert 0 < allowed["float16"] < usual_nrmse("float16")
    assert allowed["float16"] < allowed["int8"] < usual_nrmse("int8")
    again = run_recipe(options).record
    assert {each.status for each in again.targets} == {"verified"}
    assert list(write_limits(recipe, again)) != said, "what a recipe limits is left alone"

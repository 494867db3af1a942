"""A Core ML package that takes decoded images as images, through `convkit run` whole."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from test_low_precision import run
from test_shipped_models import RECIPES, changed

import convkit
from convkit.worker.mil.package_files import read_model, read_package


@pytest.mark.slow
@pytest.mark.thorough
def test_a_model_takes_the_camera_s_image_and_prepares_it_itself(tmp_path: Path) -> None:
    (tmp_path / "samples").symlink_to(RECIPES / "samples")
    target = {"runtime": "coreml", "images": True, "tolerance": {"max_abs": 1e-3}}
    axes = {"batch": {"min": 1, "typical": 1, "max": 1}}
    content = yaml.safe_load((RECIPES / "vit-preprocessed.yaml").read_text())
    content["model"]["config"]["overrides"]["num_hidden_layers"] = 1
    path = changed(
        tmp_path, "vit-preprocessed", model=content["model"], axes=axes, targets={"app": target}
    )
    outcome = run(path, tmp_path / "home")
    assert outcome.record.status == "verified"
    folder = outcome.folder / "models" / "app"
    (given,) = read_model(read_package(folder / "model.mlpackage")).description.input
    assert given.type.WhichOneof("Type") == "imageType"
    cases = {case.case for case in outcome.record.targets[0].verifications[0].cases}
    assert {"files", "smallest"} <= cases
    found = convkit.load(folder)(image=np.zeros((1, 64, 64, 3), np.uint8))
    assert found["last_hidden_state"].shape == (1, 17, 48)

"""The shipped recipe with preprocessing through `convkit run` whole, in this environment."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from PIL import Image
from small_runs import codes, run

import convkit
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import FeedError

pytestmark = pytest.mark.slow

RECIPES = Path(__file__).parents[3] / "recipes"


def shipped(folder: Path, **image: Any) -> Path:
    """Write the shipped recipe with one target and other constants of the image."""
    shutil.copytree(RECIPES / "samples", folder / "samples")
    content = yaml.safe_load((RECIPES / "vit-preprocessed.yaml").read_text())
    content["targets"] = {"float32": content["targets"]["float32"]}
    content["export"] = {"exporter": "torchscript"}
    content["inputs"][0]["preprocess"]["image"] |= image
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, home: Path) -> RunOutcome:
    return run(shipped(tmp_path_factory.mktemp("recipe")), home)


def photo() -> Image.Image:
    return Image.open(RECIPES / "samples" / "photos" / "1.png")


def test_a_photo_gives_what_the_original_gives_behind_its_processor(sound: RunOutcome) -> None:
    import torch
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    assert sound.record.exit_code == 0
    (target,) = sound.record.targets
    assert "files" in {case.case for case in target.verifications[0].cases}
    session = convkit.load(sound.folder / "models" / "float32")
    image = session.prepare("image", [np.asarray(photo())])
    assert (image.dtype, image.shape) == (np.uint8, (1, 64, 64, 3))
    found = session(image=image)["last_hidden_state"]
    # The same seed and settings as the recipe's.
    written = yaml.safe_load((RECIPES / "vit-preprocessed.yaml").read_text())["model"]["config"]
    torch.manual_seed(written["seed"])
    model = ViTModel(ViTConfig(**written["overrides"]), add_pooling_layer=True).eval()
    processor = ViTImageProcessor(size={"height": 64, "width": 64})
    with torch.inference_mode():
        expected = model(**processor(images=photo(), return_tensors="pt")).last_hidden_state
    assert found == pytest.approx(expected.numpy(), abs=1e-4)


def test_the_built_model_carries_the_constants(sound: RunOutcome) -> None:
    model = onnx.load(sound.folder / "models" / "float32" / "model.onnx", load_external_data=False)
    metadata = {each.key: each.value for each in model.metadata_props}
    carried = json.loads(metadata["convkit.contract"])["inputs"][0]["preprocess"]
    assert carried["fused"] is True
    assert carried["image"]["mean"] == [0.5, 0.5, 0.5]
    assert carried["image"]["resize"] == [64, 64]


def test_images_that_cannot_be_prepared_are_errors_with_the_fix(sound: RunOutcome) -> None:
    session = convkit.load(sound.folder / "models" / "float32")
    with pytest.raises(FeedError, match=r"image 0 is float32 \[9, 9, 3\]; pass decoded RGB"):
        session.prepare("image", [np.zeros((9, 9, 3), np.float32)])
    with pytest.raises(FeedError, match="no images"):
        session.prepare("image", [])
    with pytest.raises(FeedError, match=r"'pixels' is not an image input \(image inputs: image"):
        session.prepare("pixels", [])


@pytest.mark.thorough
def test_wrong_constants_fail_and_are_named_with_their_fix(tmp_path: Path, home: Path) -> None:
    path = shipped(tmp_path, mean=[0.485, 0.456, 0.406], channels="bgr", interpolation="nearest")
    outcome = run(path, home)
    assert outcome.record.exit_code == 1
    changes: dict[str, Any] = {}
    for finding in outcome.record.findings:
        changes |= finding.remedy.change if finding.remedy is not None else {}
    assert codes(outcome) >= {"C521", "C522", "C524"}
    assert {key.rpartition(".")[2]: value for key, value in changes.items()} == {
        "mean": [0.5, 0.5, 0.5],
        "channels": "rgb",
        "interpolation": "bilinear",
    }
    (target,) = outcome.record.targets
    # The graph normalizes with them, so no case agrees with the original.
    assert not any(case.passed for case in target.verifications[0].cases)

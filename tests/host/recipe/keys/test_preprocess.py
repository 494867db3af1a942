"""What a recipe may write under preprocess, and what is said about the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.host.draft.preprocess_section import preprocess_lines
from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.draft.transformers_families import DraftInput
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.contract import TensorSpec
from convkit.protocol.errors import RecipeError
from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing

IMAGE = {"resize": [8, 8], "scale": "1/255", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
CONFIG = {"config": {"image_processor_type": "ViTImageProcessor"}}


def content(preprocess: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tensor = {
        "name": "image",
        "from": "pixel_values",
        "dtype": "uint8",
        "shape": ["batch", 8, 8, 3],
        "sample": {"image": [0, 255]},
        "preprocess": {"fuse": True, "processor": CONFIG, "image": IMAGE} | preprocess,
    }
    given = {key: value for key, value in tensor.items() if changes.get(key, 0) is not None}
    given |= {key: changes.pop(key) for key in list(changes) if key in tensor}
    return {
        "schema": 1,
        "name": "small",
        "model": {"config": {"architecture": "vit"}},
        "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
        "inputs": [given],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
        "targets": {"ort": {"runtime": "onnxruntime"}},
    } | changes


def test_the_constants_become_part_of_the_contract() -> None:
    recipe = Recipe.model_validate(content({}))
    (spec,) = contract_of(recipe).inputs
    half = (0.5, 0.5, 0.5)
    constants = ImageConstants(resize=(8, 8), scale=1 / 255, mean=half, std=half)
    assert spec.preprocess == Preprocessing(fused=True, image=constants)
    (unfused,) = contract_of(recipe).unfused().inputs
    assert (unfused.dtype, unfused.shape) == ("float32", ("batch", 3, 8, 8))
    assert unfused.origin == "pixel_values"
    assert TensorSpec("x", "float32", ()).preprocess is None


FLOATS = {"dtype": "float32", "shape": ["batch", 3, 8, 8], "sample": {"image": [0, 1]}}


@pytest.mark.parametrize(
    ("preprocess", "changes", "key", "says"),
    [
        ({"image": None}, {}, "preprocess", "found none of them; write one of image, audio, text"),
        ({"audio": {"sampling_rate": 8}}, {}, "preprocess", "found image and audio"),
        ({"image": {"std": [1, 0, 1]}}, {}, "image", "std divides the values"),
        ({"image": {"scale": 0}}, {}, "image", "write 1/255"),
        ({"image": {"chanels": "rgb"}}, {}, "chanels", "channels"),
        ({"processor": {}}, {}, "processor", "found none of them; write one of file, config"),
        (
            {"image": None, "audio": {"sampling_rate": 8}},
            {},
            "preprocess",
            "fuse applies to images",
        ),
        ({}, {"dtype": "float32"}, "dtype", "is uint8, found float32"),
        ({}, {"shape": ["batch", 3, 8, 8]}, "shape", "must be [batch, rows, columns, 3]"),
        ({"fuse": False}, {}, "dtype", "with fuse: true, the built model takes"),
        ({"fuse": False}, FLOATS | {"shape": [1, 8, 8, 3]}, "shape", "[batch, 3, rows, columns]"),
        ({"image": IMAGE | {"crop": [4, 4]}}, {}, "crop", "makes images of [4, 4]"),
        ({"image": IMAGE | {"resize": [8, 9]}}, {}, "resize", "makes images of [8, 9]"),
        ({"processor": None}, {}, "preprocess", "a model from config has no processor beside it"),
        ({"files": ["missing.png"]}, {}, "files", "found no file 'missing.png'"),
        ({"processor": {"call": "missing.py:f"}}, {}, "call", "found no file 'missing.py'"),
        ({}, {"export": {"exporter": "optimum"}}, "fuse", "does not apply to the exporter optimum"),
    ],
)
def test_mistakes_are_named_with_their_place(
    preprocess: dict[str, Any], changes: dict[str, Any], key: str, says: str, tmp_path: Path
) -> None:
    given = content(preprocess, **changes)
    section = given["inputs"][0]["preprocess"]
    given["inputs"][0]["preprocess"] = {k: v for k, v in section.items() if v is not None}
    with pytest.raises(RecipeError) as caught:
        parse_recipe(yaml.safe_dump(given), tmp_path / "recipe.yaml")
    told = [problem for problem in caught.value.problems if says in problem.message]
    assert told, caught.value
    assert key in told[0].key


@pytest.mark.parametrize(
    ("preprocess", "says"),
    [
        ({"text": {"padding_side": "left"}, "files": ["a.txt"]}, "verify.texts"),
        ({"text": {"padding_side": "left"}, "processor": CONFIG}, "the model's tokenizer"),
        ({"text": {"padding_side": "left"}}, "has no tokenizer beside it"),
        ({"text": {}}, "declares no constant, so nothing is compared"),
        ({"audio": {"sampling_rate": 16000}}, "features are floats, but the input is int64"),
    ],
)
def test_texts_need_the_models_tokenizer(preprocess: dict[str, Any], says: str) -> None:
    tensor = {
        "name": "ids",
        "dtype": "int64",
        "shape": ["batch", 8],
        "sample": "token_ids",
        "preprocess": preprocess,
    }
    with pytest.raises(ValueError, match=says):
        Recipe.model_validate(content({}) | {"inputs": [tensor]})


VIT = {"model_type": "vit", "image_size": 32, "patch_size": 8, "hidden_size": 32, "num_channels": 3}
SETTINGS: dict[str, Any] = {
    "image_processor_type": "ViTImageProcessor",
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "size": {"height": 32, "width": 32},
}


def drafted(folder: Path, settings: dict[str, Any] | None) -> Recipe:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(VIT))
    if settings is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    destination = folder.parent / "recipe.yaml"
    return parse_recipe(draft_recipe(str(folder), destination=destination), destination).recipe


@pytest.mark.parametrize(
    ("changes", "resize", "crop", "interpolation"),
    [
        ({}, (32, 32), None, "bicubic"),
        ({"size": 32, "resample": 2}, (32, 32), None, "bilinear"),
        ({"size": 36, "do_center_crop": True, "crop_size": 32}, 36, (32, 32), "bicubic"),
    ],
)
def test_a_draft_has_the_constants_of_the_models_processor(
    changes: dict[str, Any], resize: object, crop: object, interpolation: str, tmp_path: Path
) -> None:
    (tensor,) = drafted(tmp_path / "vit", SETTINGS | changes).inputs
    assert tensor.preprocess is not None
    constants = tensor.preprocess.constants().image
    assert constants is not None
    assert (constants.resize, constants.crop) == (resize, crop)
    assert constants.interpolation == interpolation
    assert (constants.scale, constants.mean) == (1 / 255, (0.5, 0.5, 0.5))


@pytest.mark.parametrize("settings", [None, SETTINGS | {"size": 64}, SETTINGS | {"do_pad": True}])
def test_a_draft_is_silent_where_constants_do_not_fit(
    settings: dict[str, Any] | None, tmp_path: Path
) -> None:
    (tensor,) = drafted(tmp_path / "vit", settings).inputs
    assert tensor.preprocess is None


def test_a_draft_has_the_constants_of_a_feature_extractor() -> None:
    settings = {"sampling_rate": 16000, "feature_size": 80, "hop_length": 160, "n_fft": 400}
    tensor = DraftInput("input_features", "float32", ("batch", 80, 3000))
    text = "\n".join(preprocess_lines(settings, tensor))
    written = yaml.safe_load(text)["preprocess"]
    assert written == {"audio": settings}


def test_fused_inputs_of_parts_are_refused() -> None:
    part = content({})
    for key in ("schema", "name", "targets"):
        part.pop(key)
    whole = content({}) | {
        "parts": {"eye": part},
        "join": [{"call": "eye"}],
        "original": {"config": {"architecture": "vit"}},
    }
    whole.pop("model")
    with pytest.raises(ValueError, match="does not apply to a model of several parts"):
        Recipe.model_validate(whole)

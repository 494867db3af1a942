"""Inputs of Core ML's ImageType: what the program gets of an image, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract
from mil_programs import ct
from small_recipe import recipe

from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing
from convkit.runtimes.coreml.conversion.module_conversion import ModuleConversion, convert
from convkit.runtimes.coreml.packages.image_inputs import ImageModule, images_of, write_images
from convkit.runtimes.coreml.packages.package_metadata import write_metadata
from convkit.runtimes.coreml.session import EvaluatedProgram, PredictedProgram
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel

ROWS, COLUMNS = 6, 4
CONSTANTS = ImageConstants(scale=1 / 255, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), channels="bgr")


class Seen(torch.nn.Module):
    """Tells channels, rows and columns apart."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        weights = torch.arange(3 * ROWS * COLUMNS, dtype=torch.float32)
        return image * weights.reshape(1, 3, ROWS, COLUMNS)


def fused() -> ContractModule:
    """Return the module behind a contract whose images it normalizes."""
    module = Seen()
    plain = behind_contract(module, {"image": torch.ones(1, 3, ROWS, COLUMNS)}, ["y"], axes=())
    (spec,) = plain.contract.inputs
    image = dataclasses.replace(
        spec,
        dtype="uint8",
        shape=(1, ROWS, COLUMNS, 3),
        preprocess=Preprocessing(fused=True, image=CONSTANTS),
    )
    contract = dataclasses.replace(plain.contract, inputs=(image,))
    return ContractModule(LoadedModel(module, "a test's"), contract)


def picture() -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (1, ROWS, COLUMNS, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def behind() -> ContractModule:
    return fused()


@pytest.fixture(scope="module")
def package(behind: ContractModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = images_of(behind.contract)
    module = ImageModule(behind, images)
    examples = module.examples((torch.from_numpy(picture()),))
    model = convert(ModuleConversion(module, examples, images=images)).model
    write_metadata(model, behind.contract)
    write_images(model, images)
    path = tmp_path_factory.mktemp("images") / "model.mlpackage"
    model.save(str(path))
    return path


def test_the_package_declares_an_image(package: Path) -> None:
    (given,) = read_model(read_package(package)).description.input
    kind = given.type.imageType
    assert (kind.width, kind.height) == (COLUMNS, ROWS)
    assert kind.colorSpace == kind.ColorSpace.Value("RGB")


def test_an_array_is_not_taken_for_an_image(behind: ContractModule, tmp_path: Path) -> None:
    images = images_of(behind.contract)
    module = ImageModule(behind, images)
    examples = module.examples((torch.from_numpy(picture()),))
    model = convert(ModuleConversion(module, examples)).model
    write_images(model, images)
    model.save(str(tmp_path / "model.mlpackage"))
    (spec,) = EvaluatedProgram(tmp_path / "model.mlpackage").contract().inputs
    assert spec.shape == (1, 3, ROWS, COLUMNS)  # so the build's check of the contract fails


def test_a_decoded_image_gives_what_the_original_does(
    behind: ContractModule, package: Path
) -> None:
    session = EvaluatedProgram(package)
    (spec,) = session.contract().inputs
    assert (spec.name, spec.dtype, spec.shape) == ("image", "int32", (1, ROWS, COLUMNS, 3))
    with torch.inference_mode():
        (expected,) = behind(torch.from_numpy(picture()))
    found = session.run({"image": picture()})["y"]
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-3)


def test_red_and_blue_are_not_alike(package: Path) -> None:
    session = EvaluatedProgram(package)
    right = session.run({"image": picture()})["y"]
    exchanged = session.run({"image": picture()[..., ::-1]})["y"]
    assert np.abs(right - exchanged).max() > 1


class FakeModel:
    """Stands for Core ML's own model, which exists on macOS only."""

    def __init__(self, path: str, compute_units: Any) -> None:
        pass

    def predict(self, given: dict[str, Any]) -> dict[str, np.ndarray]:
        assert given["image"].size == (COLUMNS, ROWS)
        assert given["image"].mode == "RGB"
        return {"y": np.asarray(given["image"], np.float32)}


def test_with_a_mocked_core_ml_the_image_is_passed_as_a_picture(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ct.models, "MLModel", FakeModel)
    found = PredictedProgram(package, EvaluatedProgram(package)).run({"image": picture()})
    np.testing.assert_array_equal(found["y"], picture()[0])


def faults(shape: list[object], *, fuse: bool) -> list[tuple[object, str]]:
    made = recipe().dump()
    made["targets"] = {"app": {"runtime": "coreml", "images": True}}
    image = {"name": "image", "dtype": "uint8", "shape": shape, "preprocess": {"fuse": fuse}}
    made["inputs"] = [image]
    return [
        (fault.path, fault.message)
        for fault in faults_between_parts(made)
        if fault.path[0] == "targets"
    ]


def test_one_image_of_one_size_is_accepted() -> None:
    assert faults([1, 8, 8, 3], fuse=True) == []


@pytest.mark.parametrize(
    ("shape", "fuse", "message"),
    [
        ([1, 8, 8, 3], False, "needs an input whose images the model normalizes"),
        (["batch", 8, 8, 3], True, "an image has one size, and 'image' has the axis 'batch'"),
        ([2, 8, 8, 3], True, "Core ML takes one image at a time"),
    ],
)
def test_images_that_core_ml_cannot_take_are_refused(
    shape: list[object], fuse: bool, message: str
) -> None:
    found = faults(shape, fuse=fuse)
    assert {place for place, _ in found} == {("targets", "app", "images")}
    assert any(message in text for _, text in found)

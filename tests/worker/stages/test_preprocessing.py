"""Preprocessing through the stages: the reference behind the original's processor, and built models
that prepare their input in another way.
"""

import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import verified_graphs
from PIL import Image
from small_graphs import HEADER
from word_tokenizers import word_tokenizer

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    PreparedInput,
    Processor,
    ReferenceRequest,
    ReferenceResult,
    Sample,
    Source,
)
from convkit.protocol.preprocessing_constants import (
    AudioConstants,
    ImageConstants,
    Preprocessing,
    TextConstants,
)
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.values.pictures_and_sounds import draw_audio, draw_image
from convkit.worker.job_context import Context, StageFailedError, UnfitDataError
from convkit.worker.reference.prepared_inputs import tokenizer_constants
from convkit.worker.stages import reference

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 4, 4, stride=4)

    def forward(self, pixel_values):
        return {"features": torch.tanh(self.patches(pixel_values)).mean((2, 3))}

def build():
    return Small()
"""
HALF = (0.5, 0.5, 0.5)
CONSTANTS = ImageConstants(resize=(8, 8), scale=1 / 255, mean=HALF, std=HALF)
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 8, "width": 8}}
AXES = (Axis("batch", 1, 2, 3),)
FEATURES = TensorSpec("features", "float32", ("batch", 4))
FUSED = TensorSpec("image", "uint8", ("batch", 8, 8, 3), "pixel_values")
PLAIN = TensorSpec("pixel_values", "float32", ("batch", 3, 8, 8))


def contract(spec: TensorSpec, constants: ImageConstants = CONSTANTS, **given: Any) -> Contract:
    preprocess = Preprocessing(fused=spec is FUSED, image=constants)
    made = TensorSpec(spec.name, spec.dtype, spec.shape, spec.origin, preprocess=preprocess)
    return Contract((made,), (FEATURES,), given.get("axes", AXES))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    files = [folder / f"{number}.png" for number in range(4)]
    for place, file in enumerate(files):
        shape = ((20, 14), (12, 30), (9, 9), (8, 8))[place]
        Image.fromarray((255 * draw_image((*shape, 3), random)).astype(np.uint8)).save(file)
    return tuple(map(str, files))


def run_reference(
    folder: Path, asked: Contract, files: tuple[str, ...], settings: Any = VIT
) -> tuple[ReferenceResult, list[Finding], Path]:
    (folder / "model.py").write_text(MODEL)
    output = folder / "reference"
    output.mkdir()
    (spec,) = asked.inputs
    request = ReferenceRequest(
        Source("factory", path=str(folder / "model.py"), identifier="build"),
        asked,
        {spec.name: Sample("image", (0.0, 255.0 if spec.dtype == "uint8" else 1.0))},
        0,
        (),
        None,
        (),
        prepared={spec.name: PreparedInput(Processor("config", settings=settings), files)},
    )
    result, findings = reference.run(request, Context(output))
    return result, findings, output


class TestTheReference:
    @pytest.mark.parametrize("spec", [FUSED, PLAIN], ids=["fused", "plain"])
    def test_files_go_through_the_originals_processor_to_the_original(
        self, spec: TensorSpec, tmp_path: Path, photos: tuple[str, ...]
    ) -> None:
        import torch
        from transformers import ViTImageProcessor

        asked = contract(spec)
        result, findings, output = run_reference(tmp_path, asked, photos)
        assert [finding.code for finding in findings] == []
        cases = [case for case in result.cases if case.name.startswith("files")]
        assert [(case.name, case.sizes["batch"]) for case in cases] == [
            ("files", 3),
            ("files:2", 1),
        ]
        assert "3 files through ViTImageProcessor" in cases[0].description
        processor = ViTImageProcessor(size={"height": 8, "width": 8})
        images = [Image.open(file) for file in photos[:3]]
        pixels = processor(images=images, return_tensors="pt")["pixel_values"]
        inputs = read_tensors(output, "files", "inputs", asked.inputs)[spec.name]
        assert inputs.dtype == np.dtype(spec.dtype)
        assert inputs.shape == spec.concrete_shape({"batch": 3})
        module = _original(tmp_path)
        with torch.inference_mode():
            expected = module(pixels)["features"].numpy()
        found = read_tensors(output, "files", "outputs", asked.outputs)["features"]
        assert np.asarray(found) == pytest.approx(expected, abs=1e-6)

    def test_images_of_other_cases_are_only_normalized(
        self, tmp_path: Path, photos: tuple[str, ...]
    ) -> None:
        import torch

        asked = contract(FUSED)
        # A processor that would resize to 10 and crop to 8 leaves a sized image as it is.
        settings = {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 10},
            "crop_size": {"height": 8, "width": 8},
            "image_mean": list(HALF),
            "image_std": list(HALF),
        }
        _, _, output = run_reference(tmp_path, asked, (), settings)
        image = np.asarray(read_tensors(output, "typical", "inputs", asked.inputs)["image"])
        pixels = torch.from_numpy((image.astype(np.float32) / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)
        with torch.inference_mode():
            expected = _original(tmp_path)(pixels)["features"].numpy()
        found = read_tensors(output, "typical", "outputs", asked.outputs)["features"]
        assert np.asarray(found) == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize(
        ("wrong", "code"), [({"mean": (), "std": ()}, "C521"), ({"channels": "bgr"}, "C522")]
    )
    @pytest.mark.parametrize("with_files", [True, False])
    def test_wrong_constants_are_named_with_and_without_files(
        self,
        wrong: dict[str, Any],
        code: str,
        with_files: bool,
        tmp_path: Path,
        photos: tuple[str, ...],
    ) -> None:
        import dataclasses

        asked = contract(PLAIN, dataclasses.replace(CONSTANTS, **wrong))
        result, findings, _ = run_reference(tmp_path, asked, photos if with_files else ())
        assert [finding.code for finding in findings] == [code]
        assert 0 < findings[0].evidence["cosine"] < 0.9999
        assert "As declared, 'features' has a cosine of 0." in findings[0].message
        reasons = {case.name: case.reason for case in result.omitted}
        assert ("files" in reasons) != with_files
        assert with_files or "has no files" in reasons["files"]

    def test_files_that_do_not_fit_the_contract_are_an_error(
        self, tmp_path: Path, photos: tuple[str, ...]
    ) -> None:
        bigger = VIT | {"size": {"height": 16, "width": 8}}
        with pytest.raises(StageFailedError, match=r"the files become \[3, 3, 16, 8\], which"):
            run_reference(tmp_path, contract(PLAIN), photos, bigger)

    def test_a_file_that_is_no_image_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "notes.png").write_text("no image")
        with pytest.raises(UnfitDataError, match=r"notes\.png cannot be read as an image") as error:
            run_reference(tmp_path, contract(PLAIN), (str(tmp_path / "notes.png"),))
        (finding,) = error.value.findings
        assert finding.code == "E412"
        assert finding.evidence["key"] == "inputs.0.preprocess.files.0"


def _original(folder: Path) -> Any:
    from convkit.worker.original.loading import load_model

    source = Source("factory", path=str(folder / "model.py"), identifier="build")
    return load_model(source).module


SPEECH = {"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1}
LISTENER = """
import torch

class Small(torch.nn.Module):
    def forward(self, input_features):
        return {"features": torch.tanh(input_features[:, :4].mean(2))}

def build():
    return Small()
"""


def listen(folder: Path, rate: int, file_rate: int = 16000) -> tuple[Any, list[Finding], Path]:
    """Run the reference of a model of sound whose app uses some sampling rate."""
    folder.mkdir(exist_ok=True)
    samples = draw_audio((12000,), np.random.default_rng(0))
    with wave.open(str(folder / "a.wav"), "wb") as file:
        file.setframerate(file_rate)
        file.setsampwidth(2)
        file.setnchannels(1)
        file.writeframes((65535 * samples - 32768).astype("<i2").tobytes())
    constants = Preprocessing(audio=AudioConstants(rate, feature_size=80))
    spec = TensorSpec("input_features", "float32", ("batch", 80, 100), preprocess=constants)
    asked = Contract((spec,), (FEATURES,), AXES)
    (folder / "model.py").write_text(LISTENER)
    output = folder / "reference"
    output.mkdir()
    prepared = PreparedInput(Processor("config", settings=SPEECH), (str(folder / "a.wav"),))
    source = Source("factory", path=str(folder / "model.py"), identifier="build")
    request = ReferenceRequest(
        source,
        asked,
        {spec.name: Sample("normal", (0.0, 1.0))},
        0,
        (),
        None,
        (),
        prepared={spec.name: prepared},
    )
    result, findings = reference.run(request, Context(output))
    return result, findings, output


class TestSound:
    def test_files_go_through_the_originals_feature_extractor(self, tmp_path: Path) -> None:
        from transformers import WhisperFeatureExtractor

        _, findings, output = listen(tmp_path, 16000)
        assert findings == []
        with wave.open(str(tmp_path / "a.wav"), "rb") as file:
            samples = np.frombuffer(file.readframes(12000), "<i2") / 2**15
        extractor = WhisperFeatureExtractor(chunk_length=1)
        wanted = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"]
        found = np.load(output / "files" / "inputs" / "input_features.npy")
        assert found == pytest.approx(wanted, abs=1e-5)

    def test_an_apps_sampling_rate_is_compared_with_the_originals(self, tmp_path: Path) -> None:
        _, findings, _ = listen(tmp_path, 8000)
        assert [finding.code for finding in findings] == ["C525"]

    def test_a_file_of_another_rate_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StageFailedError, match="44100 samples per second, the original's"):
            listen(tmp_path, 16000, file_rate=44100)


class TestTexts:
    def contract(self) -> Contract:
        constants = Preprocessing(text=TextConstants(padding_side="left"))
        shape = ("batch", 8)
        return Contract((TensorSpec("ids", "int64", shape, preprocess=constants),), (), AXES)

    def test_an_apps_padding_is_compared_with_the_models_tokenizer(self) -> None:
        original = SimpleNamespace(tokenizer=word_tokenizer)
        found = tokenizer_constants(self.contract(), original, ["a b", "a b c d"])
        assert [finding.code for finding in found] == ["C527"]
        assert "padding_side is left" in found[0].message

    def test_a_model_without_a_tokenizer_is_an_error(self) -> None:
        with pytest.raises(UnfitDataError, match="the model has no tokenizer beside it") as error:
            tokenizer_constants(self.contract(), SimpleNamespace(tokenizer=None), [])
        (finding,) = error.value.findings
        assert (finding.code, finding.place.tensor) == ("E412", "ids")
        assert finding.evidence["key"] == "inputs.0.preprocess"


SIGNATURE = "(float[batch,3,8,8] pixel_values)"
SCORES = TensorSpec("scores", "float32", ("batch", 3))
RESULT = "float[batch,3] scores"


def network(first: str) -> str:
    """Return a graph that computes `x` in its first nodes, and scores of it."""
    return f"""{HEADER}g {SIGNATURE} => ({RESULT}) {{
        {first}
        w = Constant<value_floats=[0.9, -0.4, 1.7]>()
        three = Constant<value_ints=[1, 3, 1, 1]>()
        weights = Reshape(w, three)
        weighted = Mul(x, weights)
        steps = Constant<value_floats=[1., 2., 3., 4., 5., 6., 7., 9.]>()
        curved = Mul(weighted, steps)
        active = Tanh(curved)
        scores = ReduceMean<axes=[2, 3], keepdims=0>(active)
    }}"""


ORIGINAL = network("x = Identity(pixel_values)")
NORMALIZES = """
        half = Constant<value_float=0.5>()
        minus = Sub(pixel_values, half)
        x = Div(minus, half)"""
SCALES = """
        white = Constant<value_float=255.0>()
        unit = Div(pixel_values, white)
        half = Constant<value_float=0.5>()
        minus = Sub(unit, half)
        x = Div(minus, half)"""
REVERSES = """
        order = Constant<value_ints=[2, 1, 0]>()
        x = Gather<axis=1>(pixel_values, order)"""
TRANSPOSES = "x = Transpose<perm=[0, 1, 3, 2]>(pixel_values)"
DAMAGES = """
        most = Constant<value_float=0.3>()
        x = Min(pixel_values, most)"""


SCORED = Contract(contract(PLAIN).inputs, (SCORES,), AXES)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = {"pixel_values": Sample("image", (-1.0, 1.0))}
    folder = tmp_path_factory.mktemp("graphs")
    return verified_graphs.make_reference(folder, ORIGINAL, SCORED, samples)


def causes(original: Path, first: str) -> list[Finding]:
    _, findings = verified_graphs.run(original, network(first), contract=SCORED)
    return [finding for finding in findings if finding.code == "C528"]


class TestTheBuiltModel:
    @pytest.mark.parametrize(
        ("first", "says"),
        [
            (NORMALIZES, "the graph subtracts mean and divides by std itself"),
            (SCALES, "the graph divides by 255, subtracts mean and divides by std itself"),
            (REVERSES, "the graph expects the opposite order of channels"),
            (TRANSPOSES, "the graph reads images transposed"),
        ],
        ids=["normalizes", "scales", "reverses", "transposes"],
    )
    def test_a_step_that_it_does_itself_is_named(
        self, original: Path, first: str, says: str
    ) -> None:
        (finding,) = causes(original, first)
        assert says in finding.message
        assert finding.evidence["after"] < 0.05 * finding.evidence["before"]
        assert finding.place.tensor == "pixel_values"

    @pytest.mark.parametrize(
        "first", ["x = Identity(pixel_values)", DAMAGES], ids=["sound", "damaged"]
    )
    def test_other_models_are_not_accused(self, original: Path, first: str) -> None:
        assert causes(original, first) == []

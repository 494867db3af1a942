"""Constants against transformers' own image processors: they agree, and each mistake is named."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convkit.protocol.findings.finding import Finding
from convkit.protocol.image_settings import image_constants
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Processor
from convkit.protocol.preprocessing_constants import ImageConstants
from convkit.worker.cases.values.pictures_and_sounds import draw_image
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.image_differences import image_findings
from convkit.worker.pre_and_postprocessing.images import normalized, sized
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor

PLACE = "inputs.0.preprocess"
CLIP = ImageConstants(
    resize=32,
    crop=(32, 32),
    interpolation="bicubic",
    scale=1 / 255,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
)
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def processor(name: str = "CLIPImageProcessor", **settings: Any) -> OriginalProcessor:
    settings = {
        "image_processor_type": name,
        "size": {"shortest_edge": 32},
        "crop_size": {"height": 32, "width": 32},
    } | settings
    return OriginalProcessor(Processor("config", settings=settings), None, PLACE)


@pytest.fixture(scope="module")
def clip() -> OriginalProcessor:
    return processor()


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = ((40, 61, 3), (57, 33, 3))
    return [(255 * draw_image(shape, random)).astype(np.uint8) for shape in shapes]


def findings(
    original: OriginalProcessor, pictures: list[np.ndarray], **wrong: Any
) -> list[Finding]:
    declared = dataclasses.replace(CLIP, **wrong)
    return image_findings("pixels", PLACE, declared, original, pictures)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("CLIPImageProcessor", {}),
        ("CLIPImageProcessorFast", {"do_normalize": False}),
        ("ViTImageProcessor", {"size": {"height": 24, "width": 30}}),
        ("ViTImageProcessor", {"size": {"height": 24, "width": 30}, "resample": 1}),
        ("MobileViTImageProcessor", {"do_flip_channel_order": True}),
        ("CLIPImageProcessor", {"do_resize": False, "crop_size": {"height": 60, "width": 50}}),
    ],
)
def test_constants_read_from_settings_give_what_the_processor_gives(
    name: str, settings: dict[str, Any], pictures: list[np.ndarray]
) -> None:
    original = processor(name, **settings)
    constants = image_constants(original.settings)
    assert constants is not None
    for picture in pictures:
        made = normalized(constants, sized(constants, picture))
        assert made.dtype == np.float32
        assert made == pytest.approx(original.image(picture), abs=1e-5)
    assert image_findings("pixels", PLACE, constants, original, pictures) == []


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        ({"scale": 1.0}, "C521", "values are not divided by 255"),
        ({"scale": 1 / 255 / 255}, "C521", "values are divided by 255 twice"),
        ({"mean": (), "std": ()}, "C521", "mean is missing"),
        (IMAGENET, "C521", "std is [0.229, 0.224, 0.225], the original's is [0.26863,"),
        ({"channels": "bgr"}, "C522", "red and blue are swapped"),
        ({"layout": "channels_last"}, "C523", "layout is channels_last"),
        ({"interpolation": "bilinear"}, "C524", "interpolation is bilinear"),
        ({"resize": (32, 32)}, "C524", "resize is [32, 32], the original's is 32"),
        ({"crop": (16, 16)}, "C524", "crop is [16, 16], the original's is [32, 32]"),
    ],
)
def test_each_mistake_is_named_with_its_fix(
    clip: OriginalProcessor, pictures: list[np.ndarray], wrong: dict[str, Any], code: str, says: str
) -> None:
    (finding,) = findings(clip, pictures, **wrong)
    assert finding.code == code
    assert says in finding.message
    assert finding.is_error
    assert finding.remedy is not None
    right = {
        f"{PLACE}.image.{key}": "1/255" if key == "scale" else encode(getattr(CLIP, key))
        for key in wrong
    }
    assert finding.remedy.change == right


def test_several_mistakes_are_told_apart(
    clip: OriginalProcessor, pictures: list[np.ndarray]
) -> None:
    found = findings(clip, pictures, channels="bgr", scale=1.0, interpolation="nearest")
    assert [finding.code for finding in found] == ["C521", "C522", "C524"]
    assert all("With all changes reported for it" in finding.message for finding in found)


def test_a_mean_of_another_model_shows_even_if_it_is_close(
    clip: OriginalProcessor, pictures: list[np.ndarray]
) -> None:
    (finding,) = findings(clip, pictures, mean=(0.4824, 0.4578275, 0.40821073))
    assert finding.code == "C521"
    assert findings(clip, pictures, mean=(0.48146, 0.45783, 0.40821)) == []


def own_function(tmp_path: Any, body: str) -> OriginalProcessor:
    (tmp_path / "prep.py").write_text(f"import numpy as np\ndef prepare(image):\n    {body}\n")
    asked = Processor("function", str(tmp_path / "prep.py"), "prepare")
    return OriginalProcessor(asked, None, PLACE)


def test_a_functions_constants_are_worked_out_from_its_values(
    tmp_path: Any, pictures: list[np.ndarray]
) -> None:
    body = "return ((image[..., ::-1] / 255 - 0.25) / [0.5, 0.25, 0.2]).transpose(2, 0, 1)"
    original = own_function(tmp_path, body)
    declared = ImageConstants(scale=1 / 255)
    found = image_findings("pixels", PLACE, declared, original, pictures)
    changes: dict[str, Any] = {}
    for finding in found:
        assert finding.remedy is not None
        changes |= finding.remedy.change
    assert [finding.code for finding in found] == ["C521", "C522"]
    assert changes[f"{PLACE}.image.channels"] == "bgr"
    assert changes[f"{PLACE}.image.mean"] == pytest.approx([0.25] * 3, rel=1e-4)
    assert changes[f"{PLACE}.image.std"] == pytest.approx([0.5, 0.25, 0.2], rel=1e-4)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return np.sqrt(image / 255).transpose(2, 0, 1)", "differ by up to"),
        ("return np.zeros((3, 5, 7))", "in their shapes"),
        ("return np.full((3, *image.shape[:2]), np.nan)", "differ by up to nan"),
        ("return np.full((3, *image.shape[:2]), 0.5)", "differ by up to"),
    ],
)
def test_what_no_constant_explains_is_an_error_nevertheless(
    tmp_path: Any, pictures: list[np.ndarray], body: str, says: str
) -> None:
    original = own_function(tmp_path, body)
    found = image_findings("pixels", PLACE, ImageConstants(scale=1 / 255), original, pictures)
    assert [finding.code for finding in found] == ["C520"]
    assert says in found[0].message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('too small')", "prepare raised ValueError: too small"),
        ("return image", "returned uint8"),
    ],
)
def test_a_function_that_fails_is_named(
    tmp_path: Any, pictures: list[np.ndarray], body: str, says: str
) -> None:
    original = own_function(tmp_path, body)
    with pytest.raises(UnfitDataError, match=f"^{PLACE}.processor.call: .*{says}"):
        original.image(pictures[0])


def test_a_function_that_is_missing_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def prepare(image): ...")
    asked = Processor("function", path=str(tmp_path / "own.py"), name="prepaer")
    with pytest.raises(UnfitDataError, match=r"own\.py has no 'prepaer'.*prepare") as error:
        OriginalProcessor(asked, None, PLACE)
    key = f"{PLACE}.processor.call"
    (finding,) = error.value.findings
    assert (finding.code, finding.evidence["key"]) == ("E412", key)
    assert finding.message.count(key) == 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "name no class"),
        ({"image_processor_type": "Unknown"}, "has no processor 'Unknown'"),
        (
            {"image_processor_type": "ViTImageProcessor", "size": "big"},
            "cannot be created from its",
        ),
    ],
)
def test_settings_of_no_processor_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UnfitDataError, match=f"^{PLACE}.processor: .*{says}"):
        OriginalProcessor(Processor("config", settings=settings), None, PLACE)


def test_a_model_without_a_processor_is_an_error_with_the_fix() -> None:
    with pytest.raises(UnfitDataError, match=rf"^{PLACE}: .*no preprocessor_config\.json") as error:
        OriginalProcessor(Processor(), None, PLACE)
    (finding,) = error.value.findings
    assert finding.code == "E412"
    assert finding.remedy is not None
    assert "write processor: with file, config or call" in finding.remedy.text


@pytest.mark.parametrize(
    "settings",
    [{"do_pad": True}, {"crop_pct": 0.9}, {"do_resize": True, "size": {"longest_edge": 9}}],
)
def test_what_constants_cannot_say_is_not_guessed(settings: dict[str, Any]) -> None:
    assert image_constants(settings) is None

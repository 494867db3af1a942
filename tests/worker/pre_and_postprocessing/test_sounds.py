"""Constants of sound against transformers' own feature extractors."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Processor
from convkit.protocol.preprocessing_constants import AudioConstants
from convkit.worker.cases.values.pictures_and_sounds import draw_audio
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor
from convkit.worker.pre_and_postprocessing.sounds import read_sound, sound_findings

PLACE = "inputs.0.preprocess"
SETTINGS = {"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1}


@pytest.fixture(scope="module")
def whisper() -> OriginalProcessor:
    return OriginalProcessor(Processor("config", settings=SETTINGS), None, PLACE)


def sound() -> np.ndarray:
    return (2 * draw_audio((8000,), np.random.default_rng(0)) - 1).astype(np.float32)


def findings(original: OriginalProcessor, **constants: Any) -> list[Finding]:
    declared = AudioConstants(**{"sampling_rate": 16000} | constants)
    return sound_findings("features", PLACE, declared, original, [sound()])


def test_the_originals_own_constants_agree(whisper: OriginalProcessor) -> None:
    assert findings(whisper, feature_size=80, n_fft=400, hop_length=160, chunk_length=1) == []


@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        ({"sampling_rate": 8000}, "C525", "sampling_rate is 8000, WhisperFeatureExtractor has"),
        ({"n_fft": 512}, "C526", "that alone changes the features by up to"),
        ({"feature_size": 128}, "C526", "the features have a different shape"),
        ({"chunk_length": 30}, "C526", "the features have a different shape"),
        ({"do_normalize": True}, "C520", "has no such constant"),
    ],
)
def test_each_mistake_is_named_with_its_fix(
    whisper: OriginalProcessor, wrong: dict[str, Any], code: str, says: str
) -> None:
    (finding,) = findings(whisper, **wrong)
    assert finding.code == code
    assert says in finding.message
    assert finding.remedy is not None
    if code != "C520":
        ((path, value),) = finding.remedy.change.items()
        (key,) = wrong
        assert (path, value) == (f"{PLACE}.audio.{key}", whisper.settings[key])


def test_a_combined_file_has_its_own_section_for_sound(tmp_path: Path) -> None:
    both = {"image_processor": {"image_processor_type": "ViTImageProcessor"}}
    file = tmp_path / "processor_config.json"
    file.write_text(json.dumps(both | {"feature_extractor": SETTINGS}))
    asked = Processor("file", str(file))
    assert OriginalProcessor(asked, None, PLACE, "audio").settings["chunk_length"] == 1
    assert OriginalProcessor(Processor(), file, PLACE).settings["do_resize"] is True


def write(path: Path, rate: int = 16000, width: int = 2, channels: int = 1) -> Path:
    samples = np.array([[0, 0], [2**14, 2**14], [-(2**15), 0]])[:, :channels]
    with wave.open(str(path), "wb") as opened:
        opened.setframerate(rate)
        opened.setsampwidth(width)
        opened.setnchannels(channels)
        opened.writeframes((samples * 256 ** (width - 2)).astype(f"<i{width}").tobytes())
    return path


@pytest.mark.parametrize("width", [2, 4])
def test_files_are_read_as_mono_from_minus_one_to_one(tmp_path: Path, width: int) -> None:
    found = read_sound(write(tmp_path / "a.wav", width=width, channels=2), 16000, KEY, "sound")
    assert found.dtype == np.float32
    assert found.tolist() == [0.0, 0.5, -0.5]


KEY = "inputs.0.preprocess.files.0"


def test_files_that_cannot_be_used_are_errors_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    mistakes = {
        write(tmp_path / "a.wav", rate=44100): ("has 44100 samples", "ffmpeg -i a.wav -ar 16000"),
        tmp_path / "b.wav": ("b.wav cannot be read as .wav", "ffmpeg -i b.wav"),
        write(tmp_path / "c.wav", width=1): ("8 bits per sample", "-c:a pcm_s16le"),
    }
    for path, (problem, fix) in mistakes.items():
        with pytest.raises(UnfitDataError) as error:
            read_sound(path, 16000, KEY, "sound")
        (finding,) = error.value.findings
        assert (finding.code, finding.place.tensor) == ("E412", "sound")
        assert finding.message.startswith(f"{KEY}: ")
        assert problem in finding.message
        assert finding.remedy is not None
        assert fix in finding.remedy.text

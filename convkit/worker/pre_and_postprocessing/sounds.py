"""Sound for feature extractors, and how declared constants differ from the original's."""

import dataclasses
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.preprocessing_constants import AudioConstants
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor

# The error of two computations of one spectrogram, relative to its largest value.
_ROUNDING = 1e-4
_RATE = "sampling_rate"


def read_sound(path: Path, rate: int, key: str, tensor: str) -> np.ndarray:
    """Return a .wav file of whole numbers as mono, float32 from -1 to 1; raises UnfitDataError if
    it cannot be read or has another sampling rate.

    `key` is the recipe's key that names the file, `tensor` the input that it is for.
    """
    try:
        with wave.open(str(path), "rb") as opened:
            found, width = opened.getframerate(), opened.getsampwidth()
            channels, data = opened.getnchannels(), opened.readframes(opened.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        problem = f"{path.name} cannot be read as .wav: {error}"
        fix = f"Convert it: ffmpeg -i {path.name} -ar {rate} -c:a pcm_s16le converted.wav"
        raise UnfitDataError(key, problem, fix, tensor=tensor) from error
    if found != rate:
        problem = (
            f"{path.name} has {found} samples per second, the original's processor expects {rate}"
        )
        fix = f"Resample it: ffmpeg -i {path.name} -ar {rate} resampled.wav"
        raise UnfitDataError(key, problem, fix, tensor=tensor)
    if width not in (2, 4):
        fix = f"Save it with 16: ffmpeg -i {path.name} -c:a pcm_s16le converted.wav"
        problem = f"{path.name} has {8 * width} bits per sample"
        raise UnfitDataError(key, problem, fix, tensor=tensor)
    samples = np.frombuffer(data, dtype=f"<i{width}").reshape(-1, channels).mean(axis=1)
    return np.asarray(samples / 2.0 ** (8 * width - 1), dtype=np.float32)


def sound_findings(
    name: str,
    place: str,
    declared: AudioConstants,
    original: OriginalProcessor,
    sounds: Sequence[np.ndarray],
) -> list[Finding]:
    """Return what differs between the constants of an input and the original's feature extractor.

    `sounds` have the original's sampling rate. C525: the sampling rate; C526: another constant;
    C520: constants that the extractor does not have.
    """
    if original.is_function:
        return []  # its settings cannot be read
    found: list[Finding] = []
    for key, value in _given(declared).items():
        if key not in original.settings:
            found.append(_unknown(name, place, key, value, original))
        elif (own := original.settings[key]) != value:
            moved = _moved(key, value, original, sounds)
            found.append(_wrong(name, place, key, value, own, moved, original))
    return found


def _given(declared: AudioConstants) -> dict[str, Json]:
    values = dataclasses.asdict(declared)
    return {key: value for key, value in values.items() if value is not None}


def _moved(
    key: str, value: Json, original: OriginalProcessor, sounds: Sequence[np.ndarray]
) -> float | None:
    """Return how far a constant alone moves the features, relative to their largest value; None if
    their shape changes.
    """
    rate = int(original.settings[_RATE])
    changed = original if key == _RATE else original.changed({key: value})
    moved = []
    for sound in sounds:
        wanted = original.sound(sound, rate)
        # The app records at its own rate, and the model takes the samples for its own.
        heard = _resampled(sound, rate, int(value)) if key == _RATE else sound
        found = changed.sound(heard, rate)
        if found.shape != wanted.shape:
            return None
        largest = float(np.abs(wanted).max()) or 1.0
        moved.append(np.abs(found - wanted).max() / largest)
    return float(np.max(moved))


def _resampled(sound: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return the sound at another rate, by linear interpolation: enough to see its effect."""
    count = max(1, round(len(sound) * wanted / rate))
    times = np.arange(count) * (rate / wanted)
    return np.asarray(np.interp(times, np.arange(len(sound)), sound), dtype=np.float32)


def _wrong(
    name: str,
    place: str,
    key: str,
    value: Json,
    own: Json,
    moved: float | None,
    original: OriginalProcessor,
) -> Finding:
    if moved is None:
        effect = "the features have a different shape"
    elif moved <= _ROUNDING:
        effect = "it does not change the features of these sounds"
    else:
        effect = f"that alone changes the features by up to {100 * moved:.2g} % of their largest"
    return Finding(
        "C525" if key == _RATE else "C526",
        f"{name!r}: {key} is {value}, {original.name} has {own}: {effect}.",
        Place(tensor=name),
        {"declared": value, "original": own, "moved": moved},
        Remedy(
            f"Write {key}: {own} in the recipe and use it in the app.",
            {f"{place}.audio.{key}": own},
            proven=True,
        ),
    )


def _unknown(name: str, place: str, key: str, value: Json, original: OriginalProcessor) -> Finding:
    return Finding(
        "C520",
        f"{name!r}: {key} is {value}, but {original.name} has no such constant.",
        Place(tensor=name),
        {"declared": value, "processor": original.name},
        Remedy(f"Remove {place}.audio.{key}."),
    )

"""Guesses an input's meaning and how to sample it, from its name, type, shape and use."""

import dataclasses
import re

from convkit.protocol.contract import Dimension, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.survey.inputs.input_usage import Usage
from convkit.worker.survey.inputs.survey_messages import which_values

_CHANNELS = (1, 3, 4)
_PICTURE_CHANNELS = (1, 3)
# Words in the names of an image generator's inputs.
_LATENTS = frozenset({"latent", "latents", "sample", "noise", "noisy", "z"})
_AUDIO_NAME = re.compile(r"audio|wave|wav\b|speech|pcm|sound|signal", re.IGNORECASE)
_LENGTH_NAME = re.compile(r"(^|[_.-])(len|lens|length|lengths)$", re.IGNORECASE)
# Samples that a convolution over sound looks at, at least (4 ms at 16 kHz).
_AUDIO_WINDOW = 64
_SPECTRUM = frozenset({"STFT", "DFT"})
_PICTURE_READERS = frozenset({"Conv", "Resize", "ConvInteger", "QLinearConv", "MaxPool"})
_IMAGE_DECODERS = frozenset({"ImageDecoder", "DecodeImage"})
# A factor below this turns bytes into fractions (1 / 255), an offset above this is a mean of bytes.
_BYTE_FACTOR, _BYTE_OFFSET = 0.03, 40.0
# The rates at which sound is recorded: an input that is compared with some of them chooses one.
_SAMPLE_RATES = (8000, 11025, 16000, 22050, 24000, 32000, 44100, 48000)
# Texts of a vocabulary that a draft lists.
_MOST_STRINGS = 20
# The values of single numbers, by words of their names: lower limits, upper limits (of a frequency,
# as likely as not), thresholds; 1 for factors such as a speed or a temperature.
_SETTINGS = (
    (frozenset({"min", "minimum", "low", "lower"}), 0.0),
    (frozenset({"max", "maximum", "high", "upper"}), 1000.0),
    (frozenset({"threshold", "thresh", "score", "iou", "conf", "confidence"}), 0.5),
    (frozenset({"scale", "speed", "temperature"}), 1.0),
)
# What inputs with a size of something are called, and a size that most models accept.
_SIZES = frozenset({"size", "sizes", "hw", "resolution"})
_SIDE = 64
UNKNOWN_INTEGERS = Sample("integers", (0, 100))


@dataclasses.dataclass(frozen=True)
class Guess:
    """How to sample an input, why, and the alternatives, most likely first.

    `doubt` is a question that only the user can answer.
    """

    sample: Sample
    others: tuple[Sample, ...] = ()
    doubt: str | None = None


def guess_sample(spec: TensorSpec, usage: Usage) -> Guess:
    """Return how values for an input are drawn."""
    name = spec.name.lower()
    if usage.rows is not None:
        return Guess(Sample("integers", (0, usage.rows)))
    if usage.categories and spec.dtype != "string":
        return Guess(_one_category(usage.categories))
    if spec.dtype == "bool":
        is_mask = "mask" in name and bool(spec.shape)
        return Guess(Sample("padding_mask") if is_mask else Sample("integers", (0, 2)))
    if spec.dtype == "string":
        return _guess_strings(spec, usage)
    if spec.dtype.startswith(("float", "bfloat")):
        return _guess_float(spec, usage)
    if is_encoded_image(spec, usage):
        return Guess(Sample("encoded_image"))
    if spec.dtype == "uint8" and channel_axis(spec.shape) is not None:
        return Guess(Sample("image", (0, 255)), (Sample("integers", (0, 256)),))
    return _guess_integer(spec, usage)


def is_encoded_image(spec: TensorSpec, usage: Usage) -> bool:
    """Return True for the bytes of an image file, which the graph decodes."""
    return spec.dtype == "uint8" and bool(usage.readers & _IMAGE_DECODERS)


def _guess_strings(spec: TensorSpec, usage: Usage) -> Guess:
    if usage.strings:
        return Guess(Sample("strings", strings=usage.strings[:_MOST_STRINGS]))
    doubt = f"which texts {spec.name!r} may have: those in its sample are placeholders"
    return Guess(Sample("strings", strings=("a", "some text", "Monday 1")), (), doubt)


def _guess_integer(spec: TensorSpec, usage: Usage) -> Guess:
    name = spec.name.lower()
    few = Sample("integers", (0, 2))
    if len(spec.shape) <= 1 and (modes := modes_of(name, usage)):
        return Guess(Sample("one_of", modes), tuple(Sample("constant", (m,)) for m in modes[::-1]))
    if "mask" in name and spec.shape:
        return Guess(Sample("padding_mask"), (few,))
    if "position" in name and spec.shape:
        return Guess(Sample("positions"), (few,))
    if "type" in name or "segment" in name:
        return Guess(few, (Sample("constant", (0,)),))
    if is_length(spec):
        return Guess(Sample("constant", (1,)))
    tries = (few, Sample("integers", (1, 2)), Sample("constant", (0,)))
    doubt = f"{which_values(spec.name)}: those in its sample were assumed"
    if spec.dtype in ("int4", "uint4"):
        return Guess(Sample("integers", (0, 8)), tries, doubt)
    return Guess(UNKNOWN_INTEGERS, tries, doubt)


def _guess_setting(name: str) -> Guess:
    """Return the likeliest value of a single number: a limit, a threshold, or a factor."""
    words = set(re.split(r"[\W_\d]+", re.sub(r"^[a-z]?(min|max)", r"\1_", name.lower())))
    likeliest = next((value for known, value in _SETTINGS if words & known), 1.0)
    others = [value for _, value in _SETTINGS if value != likeliest]
    doubt = f"which value {name!r} should have: {likeliest:g} was assumed"
    return Guess(
        Sample("constant", (likeliest,)),
        tuple(Sample("constant", (value,)) for value in others),
        doubt,
    )


def _guess_float(spec: TensorSpec, usage: Usage) -> Guess:
    normal, unit = Sample("normal", (0, 1)), Sample("uniform", (0, 1))
    name = spec.name.lower()
    if spec.shape in ((), (1,)) and not usage.rows:
        return _guess_setting(spec.name)
    if "mask" in name and spec.shape:
        return Guess(Sample("padding_mask"), (normal, unit))
    if _SIZES & set(re.split(r"[\W_\d]+", name)) and len(spec.shape) <= 2:
        return Guess(Sample("constant", (_SIDE,)), (normal, unit, Sample("constant", (1,))))
    if is_latent(spec):
        return Guess(normal, (unit,))
    if channel_axis(spec.shape) is not None and usage.readers & _PICTURE_READERS:
        return _guess_image(spec, usage)
    if channel_axis(spec.shape) is not None and _has_spatial_sizes(spec.shape):
        return _guess_image(spec, usage)
    if is_audio(spec, usage):
        return Guess(Sample("audio", (-1, 1)), (unit,))
    if usage.features is not None:
        return _guess_features(spec, usage.features)
    if usage.readers and usage.readers <= {"Log", "Sqrt"}:
        return Guess(Sample("uniform", (0.01, 1)), (unit,))
    return Guess(normal, (unit, Sample("constant", (1,))))


def _one_category(known: tuple[int, ...]) -> Sample:
    """Sample the numbers that an encoder knows: some refuse any other."""
    low, high = known[0], known[-1] + 1
    if len(known) == high - low:
        return Sample("integers", (low, high))
    return Sample("one_of", known)


def _guess_features(spec: TensorSpec, features: tuple[float, float]) -> Guess:
    """Sample features around the values that matter to the model, so that every branch of its
    trees may be taken.
    """
    low, high = features
    margin = max((high - low) / 10, 0.1)
    doubt = (
        f"the range of each feature in {spec.name!r}: the values that the model splits on, or was"
        f" scaled for, are from {low:.3g} to {high:.3g}"
    )
    rounded = tuple(float(f"{end:.3g}") for end in (low - margin, high + margin))
    return Guess(Sample("uniform", rounded), (Sample("normal", (0, 1)),), doubt)


def _guess_image(spec: TensorSpec, usage: Usage) -> Guess:
    """Sample images in bytes if the graph itself scales them, otherwise from 0 to 1."""
    in_bytes = any(0 < abs(factor) < _BYTE_FACTOR for factor in usage.factors) or any(
        abs(offset) > _BYTE_OFFSET for offset in usage.offsets
    )
    doubt = (
        None
        if in_bytes
        else (
            f"how {spec.name!r} is normalized (0 to 1, -1 to 1, or by a mean and a deviation): 0 to"
            " 1 was assumed"
        )
    )
    return Guess(
        Sample("image", (0, 255) if in_bytes else (0, 1)), (Sample("normal", (0, 1)),), doubt
    )


def is_latent(spec: TensorSpec) -> bool:
    """Return True for what an image generator works on in place of an image: four channels, or
    more, of an eighth of its size.
    """
    words = set(re.split(r"[\W_\d]+", spec.name.lower()))
    return (
        len(spec.shape) == 4
        and spec.dtype.startswith(("float", "bfloat"))
        and spec.shape[1] not in _PICTURE_CHANNELS
        and bool(_LATENTS & words)
    )


def channel_axis(shape: tuple[Dimension, ...]) -> int | None:
    """Return the axis of an image's channels (1 or 3); None if it is not an image."""
    if len(shape) != 4:
        return None
    for axis, others in ((1, shape[2:]), (3, shape[1:3])):
        large = all(isinstance(size, str) or size >= 8 for size in others)
        if shape[axis] in _CHANNELS and large:
            return axis
    return None


def _has_spatial_sizes(shape: tuple[Dimension, ...]) -> bool:
    spatial = shape[2:] if channel_axis(shape) == 1 else shape[1:3]
    return all(isinstance(size, str) or size >= 16 for size in spatial)


def is_audio(spec: TensorSpec, usage: Usage) -> bool:
    """Return True if an input contains audio samples."""
    if not spec.dtype.startswith("float") or not 1 <= len(spec.shape) <= 3:
        return False
    last = spec.shape[-1]
    single = last == 1 and len(spec.shape) == 3  # one channel, last
    length = spec.shape[-2] if single else last
    if isinstance(length, int) and length < 256:
        return False
    heard = usage.window >= _AUDIO_WINDOW or bool(usage.readers & _SPECTRUM)
    return heard or bool(_AUDIO_NAME.search(spec.name))


def is_length(spec: TensorSpec) -> bool:
    """Return True if an input contains the length of each row of another."""
    return spec.dtype in ("int32", "int64") and is_length_name(spec.name)


def is_length_name(name: str) -> bool:
    """Return True if an input with this name may contain lengths."""
    return bool(_LENGTH_NAME.search(name))


def modes_of(name: str, usage: Usage) -> tuple[float, ...]:
    """Return the modes that an input chooses from: the constants it is compared with."""
    rates = tuple(float(rate) for rate in _SAMPLE_RATES if rate in usage.compared)
    if rates:
        # Rates other than those compared with are equivalent.
        return rates if len(rates) > 1 else tuple(sorted({*rates, 8000.0, 16000.0}))
    if name in ("sr", "sample_rate", "sampling_rate", "samplerate"):
        return (8000.0, 16000.0)
    whole = tuple(number for number in usage.compared if number == int(number))
    return whole if len(whole) > 1 else ()

"""Draws values for inputs: deterministic, legal, and different for each input and case."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_size
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Held, Sample
from convkit.protocol.numpy_dtypes import DTypeUnavailableError, is_float, numpy_dtype
from convkit.worker.cases.values.encoded_images import draw_encoded
from convkit.worker.cases.values.file_values import values_of_file
from convkit.worker.cases.values.held_numbers import HowMany, hold
from convkit.worker.cases.values.padding_masks import causal_mask, mask_values, real_positions
from convkit.worker.cases.values.pictures_and_sounds import draw_audio, draw_image
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError

# Kinds of samples whose values have a range.
RANGED = ("token_ids", "integers", "normal", "uniform", "columns", "image", "audio")
# Distance of a normal input's extreme values from the mean, in standard deviations: beyond anything
# a float32 normal generator produces in practice (1e-15), but still like large activations.
_EXTREME_SIGMA = 8.0
# float32 holds every whole number up to this.
_EXACT = 2**24

# full: no padding · right: zeros on the right for a good part · ragged: a different length per row
# · masked-row: the first row has no real position · patterns: padding on the left, holes, padding
# on both sides, every second position, row by row.
Padding = Literal["full", "right", "ragged", "masked-row", "patterns"]


@dataclasses.dataclass(frozen=True)
class Draw:
    """How a case's inputs are sampled: `extreme` uses the ends of each legal range.

    Without `pad_tokens`, token ids under padding are ordinary ids: only the mask marks padding.
    `values` must occur among an input's elements, by its name. `held`: how many elements have each
    number with a meaning that the sample does not count.
    """

    case: str = "example"
    padding: Padding = "full"
    extreme: bool = False
    pad_tokens: bool = True
    values: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    held: HowMany = "some"


def draw_inputs(
    contract: Contract,
    samples: Mapping[str, Sample],
    sizes: Mapping[str, int],
    seed: int,
    *,
    facts: ModelFacts,
    draw: Draw = Draw(),
) -> dict[str, np.ndarray]:
    """Return one array per input, in the contract's order, at the given axis sizes.

    The values depend only on the seed, the case's name and the input's name. Token ids under
    padding are the pad token. Raises StageFailedError, naming the input, for a sample that cannot
    be drawn.
    """
    inputs: dict[str, np.ndarray] = {}
    for spec in contract.inputs:
        sample = at_sizes(sample_for(spec, samples), sizes)
        shape = spec.concrete_shape(sizes)
        random = generator(seed, draw.case, spec.name)
        inputs[spec.name] = draw_values(spec, sample, shape, random, facts, draw)
        if (values := draw.values.get(spec.name)) and not sample.held:
            _scatter(inputs[spec.name], values, random)
    if draw.pad_tokens:
        _fill_padding(contract, samples, inputs, facts)
    return inputs


def _scatter(array: np.ndarray, values: Sequence[float], random: np.random.Generator) -> None:
    """Write values over about half of an array's elements, equally often; over all of them if there
    are many values.
    """
    if 2 * len(values) > array.size:
        chosen = random.permutation(array.size)
    else:
        chosen = np.flatnonzero(random.integers(0, 2, size=array.size))
    if array.size:
        array.flat[chosen] = np.resize(np.asarray(values).astype(array.dtype), len(chosen))


def at_sizes(sample: Sample, sizes: Mapping[str, int]) -> Sample:
    """Return a sample of lengths with the size that they are bounded by as its first number, and
    one with numbers that have a meaning with how many elements have them.
    """
    if sample.held:
        counted = (
            each if each.count is None else Held(each.value, dimension_size(each.count, sizes))
            for each in sample.held
        )
        return dataclasses.replace(sample, held=tuple(counted))
    if sample.along is None:
        return sample
    numbers = (dimension_size(sample.along, sizes), *sample.numbers)
    return dataclasses.replace(sample, numbers=numbers)


def sample_for(spec: TensorSpec, samples: Mapping[str, Sample]) -> Sample:
    """Return how an input is sampled: by default, floats are standard normal."""
    sample = samples.get(spec.name)
    if sample is not None:
        return sample
    if is_float(spec.dtype):
        return Sample("normal", (0.0, 1.0))
    raise StageFailedError(f"input {spec.name!r} is {spec.dtype} and has no sample to draw it from")


def generator(seed: int, *names: str) -> np.random.Generator:
    """Return a random generator that depends on the seed and the names only, on every machine."""
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))


def mask_shape_rows(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return how many rows and positions a padding mask has: its first axis and its last."""
    if not shape:
        return 1, 1
    return (shape[0] if len(shape) > 1 else 1), shape[-1]


def draw_values(
    spec: TensorSpec,
    sample: Sample,
    shape: tuple[int, ...],
    random: np.random.Generator,
    facts: ModelFacts,
    draw: Draw,
) -> np.ndarray:
    """Return values for one input, in its dtype; raises StageFailedError for a sample that cannot
    be drawn.
    """
    dtype = _numpy_dtype(spec)
    match sample.kind:
        case "padding_mask":
            real = padding_mask(shape, draw.padding)
            return mask_values(real, spec.padding, sample.numbers).astype(dtype)
        case "causal_mask":
            return mask_values(causal_mask(shape), spec.padding, sample.numbers).astype(dtype)
        case "positions":
            return np.broadcast_to(np.arange(shape[-1] if shape else 1), shape or ()).astype(dtype)
        case "token_ids" | "integers":
            low, high = integer_range(spec, sample, facts)
            values = (
                _whole_ends(low, high - 1, shape, random)
                if draw.extreme
                else _whole_numbers(low, high, shape, random)
            )
            values = _avoid_pad(values, sample, facts, low, high, extreme=draw.extreme)
            if sample.held:
                values = hold(values, spec, (low, high), sample.held, draw.held)
            return values.astype(dtype)
        case "normal" | "uniform" | "columns" | "image" | "audio":
            return _in_dtype(_fractions(sample, shape, random, extreme=draw.extreme), dtype, spec)
        case "encoded_image":
            return draw_encoded(shape, random)
        case "one_of":
            value = sample.numbers[int(random.integers(len(sample.numbers)))]
            return np.full(shape, _constant(spec, value), dtype=dtype)
        case "constant":
            return np.full(shape, _constant(spec, sample.numbers[0]), dtype=dtype)
        case "strings":
            texts = np.array(sample.strings)
            return np.asarray(texts[random.integers(len(texts), size=shape)])
        case "lengths":
            longest, *filled = sample.numbers
            found = _row_lengths(int(longest), shape, draw, is_filled=bool(filled))
            return found.astype(dtype)
        case "offsets":
            return _row_offsets(int(sample.numbers[0]), shape, random, draw).astype(dtype)
        case "file":
            assert sample.path is not None
            return values_of_file(spec, Path(sample.path), shape, dtype)


def _fractions(
    sample: Sample, shape: tuple[int, ...], random: np.random.Generator, *, extreme: bool
) -> np.ndarray:
    """Return values of a normal, uniform, columns, image or audio sample; the ends of its range if
    `extreme`.
    """
    if sample.kind == "columns":
        return _columns(sample, shape, random, extreme=extreme)
    low, high = sample.numbers
    if extreme:
        return _ends(*(ends_of(sample) or (low, high)), shape, random)
    if sample.kind == "normal":
        return random.normal(low, high, size=shape)
    if sample.kind == "uniform":
        return random.uniform(low, high, size=shape)
    signal = draw_image if sample.kind == "image" else draw_audio
    return low + signal(shape, random) * (high - low)


def _columns(
    sample: Sample, shape: tuple[int, ...], random: np.random.Generator, *, extreme: bool
) -> np.ndarray:
    """Return values of which each column is within its own range; the ends of it if `extreme`. More
    columns, which a survey tries, begin again.
    """
    ends = np.asarray(sample.numbers).reshape(-1, 2)
    low, high = np.resize(ends, (shape[-1], 2)).T
    parts = _ends(0.0, 1.0, shape, random) if extreme else random.uniform(0.0, 1.0, size=shape)
    return np.asarray(np.where(parts < 1, low + parts * (high - low), high))


def ends_of(sample: Sample) -> tuple[float, float] | None:
    """Return the ends of the range that a normal or uniform sample has in the case `extreme`; None
    for other kinds.
    """
    if sample.kind == "normal":
        mean, deviation = sample.numbers
        return mean - _EXTREME_SIGMA * deviation, mean + _EXTREME_SIGMA * deviation
    return (sample.numbers[0], sample.numbers[1]) if sample.kind == "uniform" else None


def _row_lengths(
    longest: int, shape: tuple[int, ...], draw: Draw, *, is_filled: bool
) -> np.ndarray:
    """Return how many elements each row uses, of at most `longest`. No row is empty: most models
    that are given lengths refuse that. `is_filled`: the first row uses all, and none more than the
    one before it.
    """
    rows = math.prod(shape)
    padding: Padding = "ragged" if draw.padding == "patterns" else draw.padding
    lengths = _lengths(rows, longest, padding)
    if is_filled:  # and sorted, as nn.utils.rnn.pack_padded_sequence wants them
        lengths = np.sort(lengths)[::-1].copy()
        lengths[:1] = longest
    return np.maximum(lengths, min(longest, 1)).reshape(shape)


def _row_offsets(
    elements: int, shape: tuple[int, ...], random: np.random.Generator, draw: Draw
) -> np.ndarray:
    """Return where each row's elements begin, ascending from 0: at different elements as long as
    there are enough; in the case `extreme`, all rows but the last are empty.
    """
    rows = math.prod(shape)
    if draw.extreme or not rows:
        return np.zeros(shape, np.int64)
    begins = random.permutation(np.resize(np.arange(1, max(elements, 2)), max(elements, rows)))
    return np.sort(np.concatenate([[0], np.minimum(begins[: rows - 1], elements)])).reshape(shape)


def _numpy_dtype(spec: TensorSpec) -> np.dtype:
    try:
        return numpy_dtype(spec.dtype)
    except DTypeUnavailableError as error:
        raise StageFailedError(f"input {spec.name!r}: {error}") from error


def integer_range(spec: TensorSpec, sample: Sample, facts: ModelFacts) -> tuple[int, int]:
    """Return the legal whole numbers of an input, low included, high excluded."""
    if sample.kind == "token_ids":
        if facts.vocabulary is None:
            message = f"Input {spec.name!r} is drawn as token_ids, and the model has no vocabulary."
            remedy = Remedy(
                "Write sample: {integers: [0, ROWS]} for it, with the rows of the table that it"
                " indexes."
            )
            finding = Finding("E411", message, Place(tensor=spec.name), remedy=remedy)
            raise StageFailedError(message, [finding])
        low, high = 0, facts.vocabulary
    else:
        low, high = int(sample.numbers[0]), int(sample.numbers[1])
    dtype = _numpy_dtype(spec)
    if dtype.kind in "iu" and not (np.iinfo(dtype).min <= low and high - 1 <= np.iinfo(dtype).max):
        raise StageFailedError(
            f"input {spec.name!r}: {spec.dtype} does not hold the values {low} to {high - 1}"
        )
    return low, high


def _whole_numbers(
    low: int, high: int, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Return whole numbers in random order: every one of them, if there are elements enough.

    So each row of a small embedding is read.
    """
    size = math.prod(shape)
    if size < high - low:
        return random.integers(low, high, size=shape)
    return random.permutation(np.resize(np.arange(low, high), size)).reshape(shape)


def _avoid_pad(
    values: np.ndarray, sample: Sample, facts: ModelFacts, low: int, high: int, *, extreme: bool
) -> np.ndarray:
    """Replace the pad token in real positions, since some models treat it as padding regardless of
    the mask.
    """
    if extreme or sample.kind != "token_ids" or facts.pad_token is None or high - low < 2:
        return values
    other = facts.pad_token + 1 if facts.pad_token + 1 < high else low
    return np.where(values == facts.pad_token, other, values)


def _ends(
    low: float, high: float, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Return the two ends of a range in random order; both occur wherever there are
    two elements.
    """
    upper = random.integers(0, 2, size=shape).astype(bool)
    if upper.size >= 2:
        upper.flat[0], upper.flat[-1] = False, True
    return np.where(upper, high, low)


def _whole_ends(
    low: int, high: int, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray:
    """Return the two ends of a range in random order, and once each the numbers next to them where
    float32 does not hold every whole number.
    """
    ends = _ends(low, high, shape, random)
    if max(abs(low), abs(high)) > _EXACT and ends.size > 3:
        ends.flat[1], ends.flat[-2] = high - 1, low + 1
    return ends


def _in_dtype(values: np.ndarray | float, dtype: np.dtype, spec: TensorSpec) -> np.ndarray:
    if not is_float(spec.dtype):
        return np.asarray(np.rint(values)).astype(dtype)
    array = np.asarray(values)
    if spec.dtype == "float16":
        limit = float(np.finfo(np.float16).max)
        array = np.clip(array, -limit, limit)
    return array.astype(dtype)


def _constant(spec: TensorSpec, value: float) -> float | int | bool:
    if is_float(spec.dtype):
        return value
    if value != int(value):
        raise StageFailedError(
            f"input {spec.name!r} is {spec.dtype}; its constant {value} is not an integer"
        )
    return bool(value) if spec.dtype == "bool" else int(value)


def padding_mask(shape: tuple[int, ...], padding: Padding) -> np.ndarray:
    """Return which positions are real: rows along the first axis, positions along the last."""
    rows, positions = mask_shape_rows(shape)
    if padding == "patterns":
        mask = _patterns(rows, positions)
    else:
        mask = np.arange(positions)[None, :] < _lengths(rows, positions, padding)[:, None]
    if len(shape) < 2:
        return mask.reshape(shape)
    return np.broadcast_to(mask.reshape((rows,) + (1,) * (len(shape) - 2) + (positions,)), shape)


def _patterns(rows: int, positions: int) -> np.ndarray:
    """Return masks that differ by row: padding on the left, holes, padding on both sides, every
    second position. The last position but one is real in each (or the only one).
    """
    place, part = np.arange(positions), max(1, positions // 3)
    kinds = np.stack(
        [
            place >= part,
            place % 3 != 1,
            (place >= part) & (place < positions - 1),
            place % 2 == positions % 2,
        ]
    )
    kinds[:, max(0, positions - 2)] = True
    return kinds[np.arange(rows) % len(kinds)]


def _lengths(rows: int, positions: int, padding: Padding) -> np.ndarray:
    """Return how many real positions each row has."""
    row = np.arange(rows)
    match padding:
        case "full":
            return np.full(rows, positions)
        case "right":  # between a third and two thirds of each row, never nothing
            return np.maximum(1, (positions * (1 + row % 2) + 1) // 3)
        case "ragged":  # from the whole row down to one position
            return np.maximum(1, positions - (row * max(positions - 1, 0)) // max(rows - 1, 1))
        case "masked-row":
            return np.where(row == 0, 0, positions)
        case "patterns":
            raise AssertionError("patterns are not lengths")


def _fill_padding(
    contract: Contract,
    samples: Mapping[str, Sample],
    inputs: dict[str, np.ndarray],
    facts: ModelFacts,
) -> None:
    """Write the pad token wherever the mask of the same shape marks padding."""
    if facts.pad_token is None:
        return
    kinds = {spec.name: sample_for(spec, samples).kind for spec in contract.inputs}
    real = {
        spec.shape: real_positions(inputs[spec.name], spec.padding)
        for spec in contract.inputs
        if kinds[spec.name] == "padding_mask"
    }
    for spec in contract.inputs:
        if kinds[spec.name] == "token_ids" and spec.shape in real:
            inputs[spec.name] = np.where(
                real[spec.shape], inputs[spec.name], facts.pad_token
            ).astype(inputs[spec.name].dtype)

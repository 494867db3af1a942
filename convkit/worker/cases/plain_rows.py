"""Rows that data has and random numbers lack: zeros (every second with a minus sign, if the input
may be negative), one value throughout, a copy of another row, one value far from all others, and
values that are all tiny, values that are close to each other, far from zero, the same values in two
inputs, and values that the model holds itself.

A variance that is computed as the mean of squares less the square of the mean loses its digits in
such a row alone. A normalization that lost its epsilon or has another, an order among equals, or a
softmax that lost the maximum it subtracts shows in no other row, and neither does a distance of
zero that nothing guards any more. Where the batch axis has room, they are rows of one case.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from convkit.protocol.contract import Axis, TensorSpec
from convkit.protocol.messages import Sample
from convkit.protocol.numpy_dtypes import is_float
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.invariance_cases import row_axis, row_dimension
from convkit.worker.cases.values.met_values import alike, held_rows
from convkit.worker.cases.values.sampled_values import Draw, ends_of, integer_range, sample_for

PlainRow = Literal[
    "drawn",
    "equal",
    "zeros",
    "constant",
    "huge",
    "huge-negative",
    "offset",
    "faint",
    "fainter",
    "faintest",
    "alike",
    "held",
]

NAME = "plain-rows"
# Values that no float of a lower precision need hold: they have cases of their own.
HUGE = f"{NAME}:huge"
FAINT = f"{NAME}:faint"
OFFSET = f"{NAME}:offset"
_TEXTS: dict[PlainRow, str] = {
    "drawn": "drawn as ever",
    "equal": "equal to another",
    "zeros": "zeros",
    "constant": "one value throughout",
    "huge": "one huge value",
    "huge-negative": "one huge negative value",
    "offset": "values close to each other, far from zero",
    "faint": "tiny values (1e-2 of those drawn)",
    "fainter": "tiny values (1e-4 of those drawn)",
    "faintest": "tiny values (1e-6 of those drawn)",
    "alike": "the same values in two inputs",
    "held": "values that the model holds itself",
}
# Their squares, and so their variance, are from below 1e-3, the largest epsilon that is usual, to
# 1e-12, the smallest.
_SHARES: dict[PlainRow, float] = {"faint": 1e-2, "fainter": 1e-4, "faintest": 1e-6}
# Together, as far as the batch has room. Of what is compared over the whole batch, zeros alone are
# another case.
_TOGETHER: tuple[PlainRow, ...] = ("drawn", "equal", "zeros", "constant")
# Those of a case that no float of a lower precision need hold.
_FAR_OFF: tuple[PlainRow, ...] = ("drawn", "huge", "huge-negative")
_TINY: tuple[PlainRow, ...] = ("drawn", "faint", "fainter", "faintest")
_CLOSE: tuple[PlainRow, ...] = ("drawn", "offset")
# Rounding decides, row by row, on which side of a limit a distance of zero falls.
_MEETING = 7
# How far from zero, in spreads. The square is 2^16: float32 keeps 8 bits of a variance that is a
# difference of squares, and what rounding the mean leaves stays below the usual limits.
_OFFSET = 256.0
# Standard deviations of a normal input's huge value: float32 has no exp of as much.
_FAR = 1024.0
_CHOSEN = ("token_ids", "integers", "normal", "uniform", "image", "audio")


@dataclasses.dataclass(frozen=True)
class PlainCase(Case):
    """A case of such rows. `filled` draws them, by their kinds, at the sizes of a batch that has
    room for them.
    """

    rows: tuple[PlainRow, ...] = ()
    filled: Callable[[tuple[PlainRow, ...]], "PlainCase"] | None = None

    def keeping(self, rows: Sequence[PlainRow]) -> "PlainCase":
        """Return the case with these kinds of rows only."""
        assert self.filled is not None
        return dataclasses.replace(self.filled(tuple(rows)), name=self.name)


def is_beyond_low_types(case: str) -> bool:
    """Return whether a case has values that no float of a lower precision need hold."""
    return case.startswith((HUGE, FAINT, OFFSET))


def plain_rows(made_from: CaseInputs) -> list[Case] | str:
    """Return cases of plain rows at small sizes; or why there is none."""
    specs = [spec for spec in made_from.contract.inputs if _is_chosen(made_from, spec)]
    if not specs:
        return "no input's values are free to choose"
    axis = row_axis(made_from.contract)
    shrinks = any(_shrinks(made_from, spec) for spec in specs)
    moves = any(_moves(made_from, spec) for spec in specs)
    meeting: list[PlainRow] = ["alike"] if any(alike(specs, made_from.samples)) else []
    if any(_held(made_from, spec) is not None for spec in specs):
        meeting.append("held")
    if isinstance(axis, str):
        # Without rows, each takes a whole case; a tiny one is enough.
        kinds: tuple[PlainRow, ...] = ("zeros", "constant", *_FAR_OFF[1:])
        return [
            _case(made_from, specs, None, f"{NAME}:{kind}", (kind,))
            for kind in (
                *kinds,
                *(("fainter",) if shrinks else ()),
                *(("offset",) if moves else ()),
                *meeting,
            )
        ]
    together = [_TOGETHER[at : at + axis.max] for at in range(0, len(_TOGETHER), axis.max)]
    names = [NAME, *(f"{NAME}:{number}" for number in range(2, len(together) + 1))]
    cases: list[Case] = [
        _case(made_from, specs, axis, name, rows)
        for name, rows in zip(names, together, strict=True)
    ]
    zeros = _case(made_from, specs, axis, f"{NAME}:zeros", ("zeros",))
    far: list[tuple[PlainRow, ...]]
    far = [_FAR_OFF] if axis.max >= len(_FAR_OFF) else [(kind,) for kind in _FAR_OFF[1:]]
    if shrinks:
        far.append(_TINY if axis.max >= len(_TINY) else ("fainter",))
    if moves:
        far.append(_CLOSE if axis.max >= len(_CLOSE) else ("offset",))
    for kind in meeting:
        several = (kind,) * min(axis.max - 1, _MEETING)
        far.append(("drawn", *several) if several else (kind,))
    return [
        *cases,
        zeros,
        *(
            _case(made_from, specs, axis, f"{NAME}:{rows[min(1, len(rows) - 1)]}", rows)
            for rows in far
        ),
    ]


def all_rows(made_from: CaseInputs, sizes: Mapping[str, int], kind: PlainRow) -> Feeds:
    """Return inputs at some sizes whose free values are all of a kind, over the whole batch."""
    feeds = made_from.draw(sizes, Draw(f"{NAME}:{kind}"))
    for spec in made_from.contract.inputs:
        if _is_chosen(made_from, spec):
            feeds[spec.name] = _filled(made_from, spec, feeds[spec.name], None, (kind,))
    return feeds


def _is_chosen(made_from: CaseInputs, spec: TensorSpec) -> bool:
    sample = sample_for(spec, made_from.samples)
    return sample.kind in _CHOSEN and not sample.held and spec.dtype != "bool"


def _shrinks(made_from: CaseInputs, spec: TensorSpec) -> bool:
    """Return whether a tiny part of an input's values is legal, too."""
    if not is_float(spec.dtype):
        return False
    sample = sample_for(spec, made_from.samples)
    low, high = ends_of(sample) or sample.numbers
    return low <= 0 <= high


def _moves(made_from: CaseInputs, spec: TensorSpec) -> bool:
    """Return whether an input's values can be close to each other and far from zero."""
    sample = sample_for(spec, made_from.samples)
    return is_float(spec.dtype) and sample.kind not in ("token_ids", "integers")


def _moved(row: np.ndarray, sample: Sample) -> np.ndarray:
    """Return a row's values that are close to each other, far from zero, and legal."""
    if sample.kind == "normal":
        return np.asarray(row + _OFFSET * sample.numbers[1])
    return np.asarray(sample.numbers[1] - (sample.numbers[1] - row) / _OFFSET)


def _case(
    made_from: CaseInputs,
    specs: Sequence[TensorSpec],
    axis: Axis | None,
    name: str,
    rows: tuple[PlainRow, ...],
) -> PlainCase:
    sizes = probe_sizes(made_from.contract)
    if axis is not None:
        sizes[axis.name] = max(axis.min, len(rows))
    described = dict.fromkeys(_TEXTS[row] for row in rows)

    def inputs() -> Feeds:
        feeds = made_from.draw(sizes, Draw(name))
        copied = made_from.contract.inputs if axis is not None else ()
        for spec in copied:
            place = row_dimension(spec, axis.name) if axis is not None else None
            if place is not None:
                feeds[spec.name] = _with_copies(feeds[spec.name], place, rows)
        for spec in specs:
            place = row_dimension(spec, axis.name) if axis is not None else None
            feeds[spec.name] = _filled(made_from, spec, feeds[spec.name], place, rows)
        if "alike" in rows:
            for one, *others in alike(specs, made_from.samples):
                place = row_dimension(one, axis.name) if axis is not None else None
                for other in others:
                    _copy_alike(feeds[one.name], feeds[other.name], place, rows)
        return feeds

    return PlainCase(
        name,
        f"rows: {', '.join(described)} ({sizes_text(sizes)})",
        sizes,
        inputs,
        may_be_refused=True,
        may_be_nan=True,
        rows=rows,
        filled=lambda kinds: _case(made_from, specs, axis, name, kinds),
    )


def _with_copies(values: np.ndarray, place: int, rows: Sequence[PlainRow]) -> np.ndarray:
    """Return values in which rows that are equal to another are the first, with all its inputs."""
    order = [0 if rows[row % len(rows)] == "equal" else row for row in range(values.shape[place])]
    return np.take(values, order, place)


def _filled(
    made_from: CaseInputs,
    spec: TensorSpec,
    values: np.ndarray,
    place: int | None,
    rows: Sequence[PlainRow],
) -> np.ndarray:
    """Return values with each row as its kind says; kinds repeat in longer batches."""
    sample = sample_for(spec, made_from.samples)
    numbers = _numbers(made_from, spec, sample)
    filled = values.copy()
    held = _held(made_from, spec) if "held" in rows else None
    written = 0
    for kind, row in _by_kind(filled, place, rows):
        if kind == "offset" and _moves(made_from, spec):
            row[...] = _moved(row, sample)
        elif kind == "held" and held is not None:
            places = row.size // held.shape[1]
            row[...] = held[np.arange(written, written + places) % len(held)].reshape(row.shape)
            written += places
        else:
            _fill(row, kind, numbers)
    return filled


def _by_kind(
    values: np.ndarray, place: int | None, rows: Sequence[PlainRow]
) -> Iterator[tuple[PlainRow, np.ndarray]]:
    """Yield each row's kind and a view of its values; the whole without an axis of rows."""
    along = values[None] if place is None else np.moveaxis(values, place, 0)
    for number in range(len(along)):
        kind = rows[-1] if place is None else rows[number % len(rows)]
        yield kind, along[number, ...]  # a view, also of a single number


def _copy_alike(
    values: np.ndarray, others: np.ndarray, place: int | None, rows: Sequence[PlainRow]
) -> None:
    """Copy the rows that are alike into another input's values."""
    pairs = zip(_by_kind(values, place, rows), _by_kind(others, place, rows), strict=True)
    for (kind, row), (_, other) in pairs:
        if kind == "alike":
            other[...] = row


def _held(made_from: CaseInputs, spec: TensorSpec) -> np.ndarray | None:
    """Return what the model holds that an input may be."""
    sample = sample_for(spec, made_from.samples)
    if not is_float(spec.dtype):
        return None
    low, high = ends_of(sample) or sample.numbers
    return held_rows(made_from.facts.tables, spec, low, high)


def _fill(row: np.ndarray, kind: PlainRow, numbers: dict[PlainRow, float]) -> None:
    if kind not in numbers or not row.size:
        return
    if kind in _SHARES:
        row *= row.dtype.type(numbers[kind])
        return
    if kind in ("huge", "huge-negative"):  # neither the first nor the last, where there is another
        row[np.unravel_index(row.size // 2, row.shape)] = numbers[kind]
        return
    row[...] = numbers[kind]
    if kind == "zeros" and numbers[kind] == 0:  # both zeros, if the input has both
        row.flat[::2] = 0


def _numbers(made_from: CaseInputs, spec: TensorSpec, sample: Sample) -> dict[PlainRow, float]:
    """Return the numbers of an input's rows, all of them legal; of tiny ones their share."""
    return _values(made_from, spec, sample) | (_SHARES if _shrinks(made_from, spec) else {})


def _values(made_from: CaseInputs, spec: TensorSpec, sample: Sample) -> dict[PlainRow, float]:
    if sample.kind in ("token_ids", "integers"):
        low, high = integer_range(spec, sample, made_from.facts)
        zero = min(max(0, low), high - 1)
        middle = low + (high - low) // 2
        return {"zeros": zero, "constant": middle, "huge": high - 1, "huge-negative": low}
    if sample.kind != "normal":
        least, most = sample.numbers
        return {
            "zeros": _zero(least, most),
            "constant": _round_number(least + (most - least) * 0.75, least, most),
            "huge": most,
            "huge-negative": least,
        }
    mean, spread = sample.numbers
    ends = ends_of(sample) or (mean, mean)
    most = float(np.finfo(np.float16).max) if spec.dtype == "float16" else math.inf
    return {
        "zeros": _zero(*ends),
        "constant": _round_number(mean + spread / 2, *ends),
        "huge": min(mean + _FAR * spread, most) if is_float(spec.dtype) else ends[1],
        "huge-negative": max(mean - _FAR * spread, -most) if is_float(spec.dtype) else ends[0],
    }


def _zero(low: float, high: float) -> float:
    """Return the value nearest to zero; with a minus sign, if the input may be negative, too."""
    return -0.0 if low < 0 <= high else min(max(0.0, low), high)


def _round_number(value: float, low: float, high: float) -> float:
    """Return a power of two near a value and in range, if there is one: sums of it are exact, so
    that what a normalization makes of equal values is no rounding.
    """
    if value <= 0 or not math.isfinite(value):
        return value
    exponent = math.log2(value)
    powers = (2.0**each for each in (round(exponent), math.floor(exponent)))
    return next((power for power in powers if low <= power <= high), value)

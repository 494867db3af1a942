"""Compares two weight tensors in pieces: neither is ever fully decoded."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

# Elements per piece: a few megabytes as float64.
_PIECE = 1 << 18


@dataclasses.dataclass(frozen=True)
class Weight:
    """A tensor as stored: its element type's name, its shape, its bytes (mapped from the file).

    `number` is the numpy type for floats, which may differ slightly; None for all others, which
    must be equal. `bits` is the size of an element.
    """

    kind: str
    shape: tuple[int, ...]
    content: np.ndarray
    bits: int
    number: np.dtype | None = None

    @property
    def type_text(self) -> str:
        """The element type and shape as text."""
        return f"{self.kind}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True)
class Gap:
    """How two tensors of the same type and shape differ: in `count` elements, the first at `index`.

    `largest` is the largest absolute difference, `magnitude` the largest finite magnitude in either
    tensor (both None if the elements are not floats). `within`: they agree within epsilon.
    """

    count: int
    index: tuple[int, ...]
    first: str
    second: str
    largest: float | None
    magnitude: float | None
    within: bool

    @property
    def detail(self) -> str:
        """The figures as text."""
        text = f"{self.count} elements differ, the first at {list(self.index)}"
        if self.largest is None or self.magnitude is None:
            return text
        return (
            f"{text}; largest difference {self.largest:.6g}, largest magnitude {self.magnitude:.6g}"
        )


def compare_weights(first: Weight, second: Weight, epsilon: float) -> Gap | None:
    """Return how two tensors of the same type and shape differ; None if they are bitwise identical.

    Floats agree within epsilon if `|a - b| <= epsilon * max(|a|, |b|)`, with the maximum over all
    finite elements of both tensors. A NaN on one side, or with different bits, does not agree, nor
    does an infinity on one side.
    """
    if len(first.content) != len(second.content):
        return Gap(
            0,
            (),
            f"{len(first.content)} bytes",
            f"{len(second.content)} bytes",
            None,
            None,
            within=False,
        )
    if _same_bytes(first.content, second.content):
        return None
    return (
        _exact_gap(first, second)
        if first.number is None
        else _float_gap(first, second, first.number, epsilon)
    )


def _same_bytes(first: np.ndarray, second: np.ndarray) -> bool:
    step = _PIECE * 8
    return all(
        np.array_equal(first[at : at + step], second[at : at + step])
        for at in range(0, len(first), step)
    )


def _exact_gap(first: Weight, second: Weight) -> Gap | None:
    count, start, values = 0, None, ("", "")
    for at, own, other in _pieces(first, second):
        differs = np.flatnonzero((own != other).any(axis=-1))
        count += len(differs)
        if start is None and len(differs):
            start = at + int(differs[0])
            values = _text(first, own[differs[0]]), _text(second, other[differs[0]])
    if start is None:  # only padding bits of the last byte differ
        return None
    return Gap(count, _index(start, first.shape), *values, None, None, within=False)


def _float_gap(first: Weight, second: Weight, number: np.dtype, epsilon: float) -> Gap | None:
    count, start, values = 0, None, ("", "")
    largest, magnitude = 0.0, 0.0
    for at, own_bytes, other_bytes in _pieces(first, second):
        own, other = _decoded(own_bytes, number), _decoded(other_bytes, number)
        for array in (own, other):
            finite = np.abs(array[np.isfinite(array)])
            magnitude = max(magnitude, float(finite.max(initial=0.0)))
        differs = np.flatnonzero((own_bytes != other_bytes).any(axis=-1))
        if not len(differs):
            continue
        count += len(differs)
        if start is None:
            start = at + int(differs[0])
            values = f"{own[differs[0]]:.9g}", f"{other[differs[0]]:.9g}"
        with np.errstate(invalid="ignore", over="ignore"):
            error = float(np.abs(own[differs] - other[differs]).max())  # NaN if any is NaN
        largest = float(np.maximum(largest, error))  # NaN propagates
    if start is None:
        return None
    within = largest <= epsilon * magnitude  # False for NaN
    return Gap(count, _index(start, first.shape), *values, largest, magnitude, within)


def _decoded(content: np.ndarray, number: np.dtype) -> np.ndarray:
    flat = np.ascontiguousarray(content).reshape(-1).view(number)
    return flat.astype(np.complex128 if number.kind == "c" else np.float64)


def _pieces(first: Weight, second: Weight) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (index of the first element, piece of the first tensor, piece of the second tensor)."""
    for at in range(0, max(math.prod(first.shape), 1), _PIECE):
        yield at, _rows(first, at), _rows(second, at)


def _rows(weight: Weight, at: int) -> np.ndarray:
    """Return a piece's elements, one per row. Pieces start at whole bytes: their size is a multiple
    of eight.
    """
    piece = np.asarray(weight.content[at * weight.bits // 8 : (at + _PIECE) * weight.bits // 8])
    if weight.bits % 8 == 0:
        return piece.reshape(-1, weight.bits // 8)
    # Packed from the lowest bit; the last byte may have padding bits.
    elements = min(math.prod(weight.shape) - at, _PIECE)
    return np.unpackbits(piece, bitorder="little")[: elements * weight.bits].reshape(
        -1, weight.bits
    )


def _text(weight: Weight, row: np.ndarray) -> str:
    """Format a non-float element, as an integer if its type allows."""
    if weight.bits < 8:
        value = int(sum(int(bit) << place for place, bit in enumerate(row)))
        signed = weight.kind.startswith("int")
        return str(value - (1 << weight.bits) if signed and value >> (weight.bits - 1) else value)
    if weight.kind.startswith(("int", "uint", "bool")):
        return str(
            int.from_bytes(bytes(row.tolist()), "little", signed=weight.kind.startswith("int"))
        )
    return "0x" + bytes(row.tolist()).hex()


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(each) for each in np.unravel_index(position, shape)) if shape else ()

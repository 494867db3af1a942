"""Detects weights that a file stores twice: identical, or one as the other's transpose."""

import functools
import hashlib
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
import onnx_ir

from convkit.protocol.findings.finding import Finding, Place, Remedy

# Smaller tensors may be equal by chance, and cost nothing.
_SMALL_BYTES = 1024
# Report from this size, or this share of all weights.
_MUCH_BYTES = 2**20
_MUCH_SHARE = 0.1

_Key = tuple[object, ...]


T = TypeVar("T")
# An address, strides in bytes, and bytes per element; the shape is part of a content's kind.
Memory = tuple[int, tuple[int, ...], int]
# Elements of a sample, spread evenly over the tensor.
_SAMPLED = 64


def duplicate_weights(model: onnx_ir.Model) -> list[Finding]:
    """Return E209 if equal initializers of the main graph waste more than 1 MiB or a tenth of the
    weights' bytes.

    A matrix counts as a duplicate of its transpose: constant folding produces that from a tied
    output layer. Tensors with a single repeated value (fresh norms, zero biases) do not count,
    since they were never tied.
    """
    tensors = {
        str(name): value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype is not onnx_ir.DataType.STRING
        and value.const_value.nbytes >= _SMALL_BYTES
    }
    groups = _equal(tensors)
    wasted = sum(tensors[name].nbytes for names in groups for name in names[1:])
    total = sum(tensor.nbytes for tensor in tensors.values())
    if wasted < _MUCH_BYTES and not (total and wasted / total > _MUCH_SHARE):
        return []
    groups.sort(key=lambda names: -tensors[names[0]].nbytes * (len(names) - 1))
    largest = groups[0]
    return [
        Finding(
            "E209",
            f"{wasted:,} of {total:,} bytes of weights are duplicates; the largest are"
            f" {' = '.join(map(repr, largest))}",
            Place(tensor=largest[-1]),
            {
                "wasted_bytes": wasted,
                "weights_bytes": total,
                "equal": [list(names) for names in groups[:20]],
            },
            Remedy(
                "Export with convkit, which stores tied weights once, or make the file's exporter"
                " share them."
            ),
        )
    ]


def _equal(tensors: dict[str, onnx_ir.TensorProtocol]) -> list[list[str]]:
    """Return groups of names of equal tensors; tensors with a unique shape are not read, and those
    with a unique sample not whole.
    """
    by_shape: dict[_Key, list[str]] = defaultdict(list)
    for name, tensor in tensors.items():
        shape = tuple(int(size) for size in tensor.shape)
        by_shape[tensor.dtype, tuple(sorted(shape)) if len(shape) == 2 else shape].append(name)
    by_sample: dict[_Key, list[str]] = defaultdict(list)
    for kind, names in by_shape.items():
        for name in names if len(names) > 1 else ():
            by_sample[kind, _sample(tensors[name].numpy())].append(name)
    by_content: dict[bytes, list[str]] = defaultdict(list)
    for names in by_sample.values():
        for name in names if len(names) > 1 else ():
            array = np.asarray(tensors[name].numpy())
            if array.size and not (array == array.flat[0]).all():
                by_content[_digest(array)].append(name)
    return [names for names in by_content.values() if len(names) > 1]


def _sample(array: np.ndarray) -> bytes:
    """Return a few elements of an array, the same for a matrix and its transpose."""
    return min(as_bytes(way[sampled_places(way.shape)]).tobytes() for way in _ways(array))


def _digest(array: np.ndarray) -> bytes:
    """Return a digest of an array's values that is the same for a matrix and its transpose."""
    return min(_digest_one(way) for way in _ways(array))


def _ways(array: np.ndarray) -> list[np.ndarray]:
    """Return an array in the forms that identify it and its transpose: both, if it is square."""
    if array.ndim != 2 or array.shape[0] < array.shape[1]:
        return [array]
    return [array.T] if array.shape[0] > array.shape[1] else [array, array.T]


def _digest_one(array: np.ndarray) -> bytes:
    digest = hashlib.sha256(repr((str(array.dtype), array.shape)).encode())
    digest.update(as_bytes(array).reshape(-1).data)
    return digest.digest()


class Content:
    """A tensor's elements. `kind` is what must be equal besides: an element type, a shape.

    `sample` are the bytes of a few elements (see `sampled_places`); `read` returns all bytes.
    `memory` is where they are, for tensors that stay there: two in the same place are equal unread.
    """

    def __init__(
        self,
        kind: tuple[object, ...],
        sample: bytes,
        read: Callable[[], np.ndarray],
        memory: Memory | None = None,
    ) -> None:
        self.fingerprint = repr(kind).encode() + b"\0" + sample
        self._kind, self._read, self.memory = kind, read, memory

    def is_same_memory(self, other: "Content") -> bool:
        """Return True if both are views of the same bytes."""
        return self.memory is not None and self.memory == other.memory

    @functools.cached_property
    def digest(self) -> bytes:
        """A digest of the kind and every byte."""
        digest = hashlib.sha256(repr(self._kind).encode())
        digest.update(self._read().reshape(-1).data)
        return digest.digest()


class ContentIndex(Generic[T]):
    """Items by content; of items with equal content, the first.

    An item is digested only once another has its fingerprint.
    """

    def __init__(self) -> None:
        self._first: dict[bytes, tuple[Content, T]] = {}
        self._known: dict[bytes, T] = {}

    def add(self, content: Content, item: T) -> T:
        """Return the item that was added first with this content, which may be this one."""
        if content.fingerprint not in self._first:
            self._first[content.fingerprint] = content, item
            return item
        other, first = self._first[content.fingerprint]
        if content.is_same_memory(other):
            return first
        self._settle(content)
        return self._known.setdefault(content.digest, item)

    def find(self, content: Content) -> T | None:
        """Return the item with this content; None if there is none."""
        if content.fingerprint not in self._first:
            return None
        other, first = self._first[content.fingerprint]
        if content.is_same_memory(other):
            return first
        self._settle(content)
        return self._known.get(content.digest)

    def _settle(self, content: Content) -> None:
        """Digest the item that was the only one of its fingerprint."""
        other, first = self._first[content.fingerprint]
        self._known.setdefault(other.digest, first)


def sampled_places(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Return the places of a sample in a tensor of that shape, as an index."""
    size = math.prod(shape)
    flat = np.unique(np.linspace(0, max(0, size - 1), _SAMPLED).astype(np.int64))[:size]
    return np.unravel_index(flat, shape) if shape else ()


def array_content(
    kind: tuple[object, ...], read: Callable[[], np.ndarray], *, stays: bool = False
) -> Content:
    """Return the content of an array, which need not be contiguous and is not kept in memory.

    `stays`: it is in memory anyway, at the same place, for as long as its content is in use.
    """
    array = read()
    sample = np.ascontiguousarray(array[sampled_places(array.shape)]).tobytes()
    memory = (array.ctypes.data, array.strides, array.itemsize) if stays else None
    return Content(kind, sample, lambda: as_bytes(read()), memory)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Return an array's content as bytes: 4-, 8- and 16-bit floats have no buffer of their own."""
    return np.ascontiguousarray(array).view(np.uint8)

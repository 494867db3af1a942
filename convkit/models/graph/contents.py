"""Finds tensors with equal contents, and reads only those whole that may have an equal.

Almost all weights of a model differ in a handful of elements, so comparing those first spares
digesting gigabytes. Equality is always decided by the SHA-256 of every byte.
"""

import functools
import hashlib
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")

# An address, strides in bytes, and bytes per element; the shape is part of a content's kind.
Memory = tuple[int, tuple[int, ...], int]

# Elements of a sample, spread evenly over the tensor.
_SAMPLED = 64


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

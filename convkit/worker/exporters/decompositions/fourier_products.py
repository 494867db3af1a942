"""Fourier transforms as products with matrices of cosines and sines, for converters that have no
transform: exact up to the rounding of a sum, at n operations a value in place of log n.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.fx import Node

# A matrix of this size holds 16 MiB a part.
LARGEST = 2048
_KINDS = {"aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r"}
# torch's numbers for what a transform is divided by (ATen/native/SpectralOpsUtils.h), as powers of
# its length.
_DIVISORS = {0: 0.0, 1: 0.5, 2: 1.0}


@dataclasses.dataclass(frozen=True)
class Step:
    """A transform along one axis: of `length` values, forwards or backwards, of which the first
    `given` are there and the first `wanted` are wanted. `gives_real`: the values that are not given
    mirror the others.
    """

    axis: int
    length: int
    given: int
    wanted: int
    divisor: float
    is_forward: bool
    gives_real: bool

    @property
    def matrix(self) -> np.ndarray:
        """The matrix in complex128, of shape (wanted, given)."""
        rows, columns = np.arange(self.wanted)[:, None], np.arange(self.given)
        turns = rows * columns % self.length / self.length
        matrix = np.exp((-2j if self.is_forward else 2j) * np.pi * turns) / self.divisor
        if self.gives_real:
            mirrored = (columns > 0) & (2 * columns != self.length)
            matrix = matrix * np.where(mirrored, 2, 1)
        return matrix


def is_transform(node: Node) -> bool:
    """Say whether an operation is one of torch's transforms."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name in _KINDS


def half_axis(node: Node) -> int | None:
    """Return the axis along which a transform of real numbers gives half a spectrum; None for a
    transform along several axes, of complex numbers, of a length that varies, or in full.
    """
    if node.target._schema.name != "aten::_fft_r2c" or len(node.args[1]) != 1:  # noqa: SLF001
        return None
    given = node.args[0].meta["val"]
    axis = node.args[1][0] % given.ndim
    length = given.shape[axis]
    is_half = isinstance(length, int) and length > 1 and bool(node.args[3])
    return axis if is_half else None


def steps(node: Node) -> Sequence[Step] | None:
    """Return a transform's steps; None if a length varies or is too large."""
    kind = node.target._schema.name.removeprefix("aten::_fft_")  # noqa: SLF001 - a transform's
    given, result = node.args[0].meta["val"], node.meta["val"]
    axes, normalization, last = node.args[1:4]
    found = []
    for place in reversed(range(len(axes))):
        axis = axes[place] % given.ndim
        is_real = place == len(axes) - 1 and kind != "c2c"
        length = result.shape[axis] if kind == "c2r" else given.shape[axis]
        count = result.shape[axis] if is_real else length
        if not isinstance(length, int) or length > LARGEST or not isinstance(count, int):
            return None
        found.append(
            Step(
                axis,
                length,
                given.shape[axis],
                count,
                float(length) ** _DIVISORS[int(normalization)],
                kind == "r2c" or (kind == "c2c" and bool(last)),
                is_real and kind == "c2r",
            )
        )
    return found[::-1] if kind == "c2r" else found


def along(axis: int, matrix: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what multiplies an axis with a matrix of shape (after, before)."""

    def multiply(values: torch.Tensor) -> torch.Tensor:
        # A copy, because a product of its own views rows, in a layout that is not known here.
        turned = values.transpose(axis, -1).clone(memory_format=torch.contiguous_format)
        return torch.matmul(turned, matrix.mT).transpose(axis, -1)

    return multiply

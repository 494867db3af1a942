"""Scans a program's constants for values that float16 cannot represent, without running it.

For a float32 program, it predicts a float16 build; in a float16 program, the damage is already done
and shows as infinities. Only evaluation shows whether it matters: a mask of -inf is intended, its
product with zero is not.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from convkit.worker.mil.operation_modules import module_path
from convkit.worker.mil.program import Program, walk
from convkit.worker.mil.saturated_constants import FLOAT16_LARGEST

# Half of the smallest subnormal float16 (2^-24): magnitudes up to this round to zero, with ties to
# even (IEEE 754).
_VANISHES_UP_TO = 2.0**-25
_CHUNK = 1 << 18  # elements processed at once, so that a large weight is not copied as a whole


@dataclasses.dataclass(frozen=True)
class ProgramConsumer:
    """An operation that consumes a constant; `module` is empty if the package does not record
    it.
    """

    operation: str
    name: str
    module: str


@dataclasses.dataclass(frozen=True)
class ProgramConstantScan:
    """A constant that float16 cannot represent.

    `beyond` elements are finite and larger than float16's maximum, `infinite` and `nan` ones
    already are, `vanishing` ones are nonzero and become zero. `largest` is the largest finite
    magnitude.
    """

    constant: str
    dtype: str
    elements: int
    beyond: int
    infinite: int
    nan: int
    vanishing: int
    zeros: int
    largest: float
    consumers: tuple[ProgramConsumer, ...]

    @property
    def vanishes(self) -> bool:
        """True if only zeros are left of the constant, such as an epsilon that no longer guards
        anything.
        """
        return self.vanishing > 0 and self.vanishing + self.zeros == self.elements


def scan_constants(program: Program) -> tuple[ProgramConstantScan, ...]:
    """Return the constants with elements that are not finite or beyond float16, or that vanish
    entirely.

    In program order. For compressed weights, the scan covers their inputs (scales, tables), not the
    weights.
    """
    found = []
    for operation in walk(program.function):
        if operation.op_type != "const":
            continue
        (var,) = operation.outputs
        values = (
            np.asarray(var.val) if var.val is not None and not isinstance(var.val, str) else None
        )
        if values is None or values.dtype.kind != "f":
            continue
        scan = _scan(var, values)
        if scan.beyond or scan.infinite or scan.nan or scan.vanishes:
            found.append(scan)
    return tuple(found)


def _scan(var: Any, values: np.ndarray) -> ProgramConstantScan:  # noqa: ANN401 - coremltools' Var
    beyond = infinite = nan = vanishing = zeros = 0
    largest = 0.0
    for chunk in _chunks(values):
        magnitude = np.abs(chunk)
        finite = magnitude[np.isfinite(magnitude)]
        nan += int(np.isnan(magnitude).sum())
        infinite += int(np.isinf(magnitude).sum())
        beyond += int((finite > FLOAT16_LARGEST).sum())
        zeros += int((finite == 0).sum())
        vanishing += int(((finite > 0) & (finite <= _VANISHES_UP_TO)).sum())
        largest = max(largest, float(finite.max(initial=0.0)))
    return ProgramConstantScan(
        constant=var.name,
        dtype=str(values.dtype),
        elements=values.size,
        beyond=beyond,
        infinite=infinite,
        nan=nan,
        vanishing=vanishing,
        zeros=zeros,
        largest=largest,
        consumers=tuple(
            ProgramConsumer(
                each.op_type, each.outputs[0].name if each.outputs else each.name, module_path(each)
            )
            for each in dict.fromkeys(var.child_ops)
        ),
    )


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]

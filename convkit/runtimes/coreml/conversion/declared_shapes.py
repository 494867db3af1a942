"""The contract's inputs as declared to Core ML: names, element types, and shapes with ranges or
enumerated sizes.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from convkit.protocol.contract import (
    Axis,
    Contract,
    Dimension,
    DType,
    TensorSpec,
    dimension_axes,
    dimension_size,
)
from convkit.runtimes.coreml.packages.options import Shapes

# Replacements for element types that an ML program does not support as inputs and outputs
# (coremltools 9.0).
_SERVED: dict[DType, DType] = {
    "bool": "int32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
    "uint32": "int32",
    "int64": "int32",
    "uint64": "int32",
    "float64": "float32",
    "bfloat16": "float32",
}


def served_contract(contract: Contract) -> Contract:
    """Return the contract as a package can declare it: integers as int32, no float wider than
    float32, and one element for an input that is a scalar.
    """
    inputs = tuple(
        dataclasses.replace(spec, shape=spec.shape or (1,))
        for spec in map(_served, contract.inputs)
    )
    return Contract(inputs, tuple(map(_served, contract.outputs)), contract.axes)


def _served(spec: TensorSpec) -> TensorSpec:
    return dataclasses.replace(
        spec, dtype=_SERVED.get(spec.dtype, spec.dtype), preprocess=None, postprocess=None
    )


def input_types(contract: Contract, shapes: Shapes) -> list[Any]:
    """Return a `TensorType` for each input, in order."""
    import coremltools as ct

    served = served_contract(contract)
    declare = _Ranges(contract) if shapes == "range" else _Enumerated(contract)
    return [
        ct.TensorType(name=spec.name, shape=declare.shape(spec), dtype=np.dtype(spec.dtype).type)
        for spec in served.inputs
    ]


def output_types(contract: Contract) -> list[Any]:
    """Return a `TensorType` for each output, in order: by default, a float16 program returns
    float16.
    """
    import coremltools as ct

    return [
        ct.TensorType(name=spec.name, dtype=np.dtype(spec.dtype).type)
        for spec in served_contract(contract).outputs
    ]


class _Ranges:
    """Any size from an axis's min to its max. Dimensions of the same axis share one range, and thus
    stay equal.
    """

    def __init__(self, contract: Contract) -> None:
        self._axes = contract.axes
        self._known: dict[Dimension, Any] = {}

    def shape(self, spec: TensorSpec) -> tuple[Any, ...]:
        return tuple(map(self._dimension, spec.shape))

    def _dimension(self, dimension: Dimension) -> Any:  # noqa: ANN401 - a number or coremltools' RangeDim
        import coremltools as ct

        if isinstance(dimension, int):
            return dimension
        if dimension not in self._known:
            sizes = list(_corner_sizes(self._axes, dimension))
            typical = dimension_size(dimension, {axis.name: axis.typical for axis in self._axes})
            low, high = min(sizes), max(sizes)
            self._known[dimension] = low if low == high else ct.RangeDim(low, high, default=typical)
        return self._known[dimension]


def _corner_sizes(axes: Sequence[Axis], dimension: str) -> Iterator[int]:
    """Yield a dimension's sizes with each of its axes at its minimum or maximum."""
    involved = [axis for axis in axes if axis.name in dimension_axes(dimension)]
    for corner in itertools.product(*((axis.min, axis.max) for axis in involved)):
        yield dimension_size(
            dimension, {axis.name: size for axis, size in zip(involved, corner, strict=True)}
        )


class _Enumerated:
    """Every combination of the axes' minimum, typical and maximum sizes; the typical one is the
    default.
    """

    def __init__(self, contract: Contract) -> None:
        names = [axis.name for axis in contract.axes]
        sizes = [sorted({axis.min, axis.typical, axis.max}) for axis in contract.axes]
        self._combinations = [
            dict(zip(names, combination, strict=True)) for combination in itertools.product(*sizes)
        ]
        self._typical = contract.typical_sizes()
        varying = [
            spec for spec in contract.inputs if any(isinstance(size, str) for size in spec.shape)
        ]
        self._are_paired = len(varying) > 1

    def shape(self, spec: TensorSpec) -> Any:  # noqa: ANN401 - a tuple or coremltools' EnumeratedShapes
        import coremltools as ct

        choices = list(dict.fromkeys(spec.concrete_shape(sizes) for sizes in self._combinations))
        if len(choices) == 1:
            return choices[0]
        # by index: all inputs list the same number of shapes, in the same order
        if self._are_paired:
            choices = [spec.concrete_shape(sizes) for sizes in self._combinations]
        default = list(spec.concrete_shape(self._typical))
        return ct.EnumeratedShapes(shapes=[list(shape) for shape in choices], default=default)


def combinations(contract: Contract) -> int:
    """Return the number of shapes in an enumeration of a contract's axes."""
    return int(np.prod([len({axis.min, axis.typical, axis.max}) for axis in contract.axes] or [1]))

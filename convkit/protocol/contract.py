"""The contract's vocabulary: element types, tensor specifications, symbolic axes. Standard library
only.

Both sides use these types: the host to read recipes and judge results, the workers to check graphs
and sessions.
"""

import ast
import dataclasses
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from convkit.protocol.json_codec import SPARSE
from convkit.protocol.postprocessing_constants import Postprocessing
from convkit.protocol.preprocessing_constants import Preprocessing

DType = Literal[
    "bool",
    "int4",
    "uint4",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float8e4m3fn",
    "float8e5m2",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "string",
]
DTYPES: tuple[str, ...] = get_args(DType)


def is_whole(dtype: str) -> bool:
    """Say whether an element type is compared by equality, not by distance: labels, tokens, pixels,
    true and false, and texts.
    """
    return dtype in ("bool", "string") or dtype.startswith(("int", "uint"))


# A dimension is a fixed size, an axis by name, or integer arithmetic over axes ("past + sequence").
Dimension = int | str

# Python's parser warns about some texts ("1if") and gives up on long ones; neither is a dimension.
_ALPHABET = re.compile(r"[A-Za-z_0-9 +*/()-]+")
_DIGITS_THEN_LETTER = re.compile(r"\b[0-9]+[A-Za-z_]")
_LONGEST = 200

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class DimensionError(ValueError):
    """A dimension that is not a size, an axis or integer arithmetic over axes."""


def dimension_axes(dimension: Dimension) -> tuple[str, ...]:
    """Return the names of the axes a dimension depends on, in order of appearance."""
    if isinstance(dimension, int):
        return ()
    names = [node for node in ast.walk(_parse(dimension)) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(node.id for node in sorted(names, key=lambda node: node.col_offset)))


def names_with_axis(tensors: Iterable[tuple[str, Iterable[Dimension]]], axis: str) -> list[str]:
    """Return the names of the tensors, given with their shapes, that depend on an axis."""
    return [
        name
        for name, shape in tensors
        if any(axis in dimension_axes(dimension) for dimension in shape)
    ]


def dimension_size(dimension: Dimension, sizes: Mapping[str, int]) -> int:
    """Return a dimension's size, in elements, for the given axis sizes; raises DimensionError."""
    if isinstance(dimension, int):
        return dimension
    return _evaluate(_parse(dimension).body, sizes, dimension)


def _parse(text: str) -> ast.Expression:
    if len(text) > _LONGEST or not _ALPHABET.fullmatch(text) or _DIGITS_THEN_LETTER.search(text):
        raise DimensionError(
            f"{text[:_LONGEST]!r}: a dimension may only contain axes, integers and + - * //"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise DimensionError(f"{text!r} is neither an axis nor arithmetic over axes") from error
    for node in ast.walk(tree):
        allowed = isinstance(node, ast.Expression | ast.BinOp | ast.Name | ast.Load | ast.Constant)
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            allowed = False
        if not allowed and type(node) not in _OPERATORS:
            how = _division(node)
            raise DimensionError(
                f"{text!r}: a dimension may only contain axes, integers and + - * //{how}"
            )
    return tree


def _division(node: ast.AST) -> str:
    """Return how to write a division."""
    if not isinstance(node, ast.Div):
        return ""
    return (
        "; write // for a division that rounds down, or make the quotient the axis (2*m + 1 in"
        " place of n)"
    )


def _evaluate(node: ast.expr, sizes: Mapping[str, int], text: str) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            if name not in sizes:
                raise DimensionError(f"{text!r} names the axis {name!r}, which is not declared")
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            try:
                return int(
                    _OPERATORS[type(op)](
                        _evaluate(left, sizes, text), _evaluate(right, sizes, text)
                    )
                )
            except ZeroDivisionError as error:
                raise DimensionError(f"{text!r} divides by zero") from error
        case _:
            raise DimensionError(f"{text!r} is not arithmetic over axes")


@dataclasses.dataclass(frozen=True)
class Axis:
    """A symbolic axis: the sizes a converted model must support, in elements."""

    name: str
    min: int
    typical: int
    max: int


@dataclasses.dataclass(frozen=True)
class DataAxis:
    """An axis of outputs whose size depends on the inputs' values: the number of detections.

    The rows along it are a set. `max` is the largest size. Rows of two models belong together by
    the overlap of their boxes in the output `boxes` (`box_format`: x1, y1, x2, y2 or center x,
    center y, width, height), by equal values in the output `equal`, or else by being nearest.
    `scores` is the output with a score per row; the model keeps rows whose score exceeds
    `threshold`.
    """

    name: str
    max: int
    boxes: str | None = None
    box_format: Literal["corners", "center"] = "corners"
    equal: str | None = None
    scores: str | None = None
    threshold: float | None = None


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output: its name in the converted model, element type and shape.

    `origin` is the model's own name (a forward argument, an output field), if different. `mask`
    names an input that marks padding; an output's values there are meaningless. `padding` is the
    value with which an input that is a mask marks it: 0, or 1 as `nn.MultiheadAttention` expects.
    `preprocess` says how an image, sound or text becomes an input, `postprocess` what is made of an
    output.
    """

    name: str
    dtype: DType
    shape: tuple[Dimension, ...]
    origin: str | None = None
    mask: str | None = None
    preprocess: Preprocessing | None = None
    postprocess: Postprocessing | None = None
    padding: int = dataclasses.field(default=0, metadata=SPARSE)

    def concrete_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape for given axis sizes."""
        return tuple(dimension_size(dimension, sizes) for dimension in self.shape)

    def sizes_from(self, shape: Sequence[int]) -> dict[str, int]:
        """Return the axis sizes that a tensor of this shape determines: those of its dimensions
        that are an axis by themselves. Raises ValueError for another number of dimensions.
        """
        return {
            dimension: size
            for dimension, size in zip(self.shape, shape, strict=True)
            if isinstance(dimension, str) and dimension.isidentifier()
        }

    def shape_at(self, sizes: Mapping[str, int]) -> tuple[Dimension, ...]:
        """Return the shape for given axis sizes; axes without a size, those of data, stay names."""
        return tuple(
            dimension_size(dimension, sizes)
            if set(dimension_axes(dimension)) <= set(sizes)
            else dimension
            for dimension in self.shape
        )

    def fits(self, shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
        """Say whether a tensor of this shape is right at these sizes, for any size of its data
        axes.
        """
        declared = self.shape_at(sizes)
        return len(shape) == len(declared) and all(
            isinstance(wanted, str) or wanted == found
            for wanted, found in zip(declared, shape, strict=True)
        )

    @property
    def type_text(self) -> str:
        """The type without the name: `float32[batch, 4]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"


@dataclasses.dataclass(frozen=True)
class Contract:
    """A model's inputs and outputs, in order, and the axes in their shapes.

    `data_axes` occur in outputs only.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    axes: tuple[Axis, ...]
    data_axes: tuple[DataAxis, ...] = ()

    def axis(self, name: str) -> Axis:
        """Return an axis by name; raises KeyError."""
        return {axis.name: axis for axis in self.axes}[name]

    def mask_of(self, output: TensorSpec) -> TensorSpec | None:
        """Return the input that marks an output's padding, if there is one."""
        return next((spec for spec in self.inputs if spec.name == output.mask), None)

    def data_axis_of(self, spec: TensorSpec) -> DataAxis | None:
        """Return the data axis of an output; None if its size depends on the inputs' alone."""
        return next((axis for axis in self.data_axes if axis.name in spec.shape), None)

    def unfused(self) -> "Contract":
        """Return the original's own contract: where the built model takes an image, the original
        takes what its processor makes of it.
        """
        return dataclasses.replace(self, inputs=tuple(map(_unfused, self.inputs)))

    def carried(self) -> "Contract":
        """Return what a model file carries of its contract: nothing that only says which cases are
        run and what of them is compared. Every axis is typical at its smallest size, and no output
        has a mask.
        """
        axes = tuple(dataclasses.replace(axis, typical=axis.min) for axis in self.axes)
        inputs, outputs = (
            tuple(dataclasses.replace(spec, mask=None) for spec in side)
            for side in (self.inputs, self.outputs)
        )
        return dataclasses.replace(self, inputs=inputs, outputs=outputs, axes=axes)

    def typical_sizes(self) -> dict[str, int]:
        """Return every axis at its typical size."""
        return {axis.name: axis.typical for axis in self.axes}


def _unfused(spec: TensorSpec) -> TensorSpec:
    given = spec.preprocess
    if given is None or not given.fused or given.image is None:
        return spec
    batch, rows, columns, channels = spec.shape
    first = given.image.layout == "channels_first"
    shape = (batch, channels, rows, columns) if first else spec.shape
    return dataclasses.replace(
        spec, dtype="float32", shape=shape, preprocess=dataclasses.replace(given, fused=False)
    )

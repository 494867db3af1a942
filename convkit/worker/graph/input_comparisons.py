"""Finds an ONNX graph's comparisons with its inputs' sizes and values, by reading its nodes."""

import math
import operator
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import numpy_helper

from convkit.protocol.contract import Contract, DimensionError, dimension_size
from convkit.worker.cases.decision_sizes import (
    COMPARISONS,
    Decisions,
    Formula,
    SizeDecision,
    Sizes,
    Threshold,
)

# Sizes are followed as lists of formulas: the elements of a shape, or one number.
_Sizes = list[Formula]
# An input's own values, times a scale plus an offset.
_Origin = tuple[str, float, float]

_COMPARE = {
    "Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge",
}  # fmt: skip
_KEEP = frozenset({"Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Flatten"})
_MOVE = frozenset({"Slice", "Gather", "Transpose", "Expand", "Split", "GatherElements"})


def _divide(one: int, other: int) -> int:
    """Return a quotient as ONNX's Div gives it for sizes: rounded down, of fractions exact."""
    whole = isinstance(one, int) and isinstance(other, int)
    return one // other if whole else one / other  # type: ignore[return-value]


_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _divide,
    "Mod": operator.mod, "Min": min, "Max": max,
}  # fmt: skip


def graph_decisions(path: Path, contract: Contract) -> Decisions:
    """Return the comparisons of a file's nodes, those of subgraphs too; weights are not read.

    None for a file that is not a model: the export stage says what is wrong with it.
    """
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except (OSError, DecodeError):
        return Decisions()
    reader = _Reader(contract)
    reader.read(graph)
    return Decisions(tuple(reader.sizes), tuple(reader.thresholds)) + Decisions()


class _Reader:
    """Follows sizes and inputs through the nodes, which are in topological order."""

    def __init__(self, contract: Contract) -> None:
        self._constants: dict[str, np.ndarray] = {}
        self._known: dict[str, _Sizes] = {}
        self._origins: dict[str, _Origin] = {}
        self._shapes: dict[str, Sequence[object]] = {}
        self.sizes: list[SizeDecision] = []
        self.thresholds: list[Threshold] = []
        for spec in contract.inputs:
            name = spec.origin or spec.name
            self._origins[name] = (spec.name, 1.0, 0.0)
            self._shapes[name] = spec.shape

    def read(self, graph: onnx.GraphProto) -> None:
        """Read a graph's nodes; names of outer graphs are known in inner ones."""
        for tensor in graph.initializer:
            external = tensor.data_location == onnx.TensorProto.EXTERNAL
            if not external and math.prod(tensor.dims) <= 64:
                self._constants[tensor.name] = numpy_helper.to_array(tensor)
        for value in graph.value_info:
            dims = [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
            self._shapes.setdefault(value.name, dims)
        for node in graph.node:
            self._node(node)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self.read(attribute.g)

    def _node(self, node: onnx.NodeProto) -> None:
        kind, inputs = node.op_type, list(node.input)
        if kind == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value" and math.prod(attribute.t.dims) <= 64:
                    self._constants[node.output[0]] = numpy_helper.to_array(attribute.t)
        elif kind == "Shape" and (found := self._shape(node)) is not None:
            self._known[node.output[0]] = found
        elif kind in _COMPARE:
            self._compare(node, _COMPARE[kind])
        elif kind == "If" and (known := self._formulas(inputs[0])) is not None:
            self._decide(node, "ne", known[0], lambda _: 0)
        elif kind == "Clip":
            for limit in inputs[1:]:
                self._threshold(node, inputs[0], limit)
        elif inputs:
            self._follow(node, kind, inputs)

    def _follow(self, node: onnx.NodeProto, kind: str, inputs: list[str]) -> None:
        """Record the meaning of a node's outputs, if they are sizes or an input's own values."""
        known = self._size_result(kind, inputs)
        if known is not None and node.output:
            self._known[node.output[0]] = known
        origin = self._origins.get(inputs[0])
        if origin is not None and kind in _KEEP | _MOVE:
            self._origins.update(dict.fromkeys(node.output, origin))
            if kind in ("Identity", "Cast") and inputs[0] in self._shapes:
                self._shapes[node.output[0]] = self._shapes[inputs[0]]
        elif kind in ("Add", "Sub", "Mul") and origin is not None and len(inputs) == 2:
            number = self._number(inputs[1])
            if number is not None:
                tensor, scale, offset = origin
                moved = {
                    "Add": (scale, offset + number),
                    "Sub": (scale, offset - number),
                    "Mul": (scale * number, offset * number),
                }[kind]
                self._origins[node.output[0]] = (tensor, *moved)

    def _size_result(self, kind: str, inputs: list[str]) -> _Sizes | None:
        if kind == "Concat":
            parts = [self._formulas(name) for name in inputs]
            return [f for part in parts for f in part or ()] if all(parts) else None
        first = self._known.get(inputs[0])
        if kind in _KEEP:
            return first
        if kind in ("Gather", "Slice") and first is not None:
            return self._picked(kind, first, inputs[1:])
        if kind == "ReduceProd" and first is not None:
            return [lambda sizes: math.prod(formula(sizes) for formula in first)]
        if kind in _COMPUTE and len(inputs) == 2 and any(name in self._known for name in inputs):
            sides = [self._formulas(name) for name in inputs]
            if sides[0] and sides[1] and len(sides[0]) == len(sides[1]) == 1:
                compute, one, other = _COMPUTE[kind], sides[0][0], sides[1][0]
                return [lambda sizes: compute(one(sizes), other(sizes))]
        return None

    def _picked(self, kind: str, first: _Sizes, others: list[str]) -> _Sizes | None:
        indices = [self._constants.get(name) for name in others if name]
        if any(index is None for index in indices):
            return None
        numbers = [int(index.reshape(-1)[0]) for index in indices if index is not None]
        if kind == "Gather":
            index = indices[0]
            assert index is not None
            places = [int(place) for place in index.reshape(-1)]
            inside = all(-len(first) <= place < len(first) for place in places)
            return [first[place] for place in places] if inside else None
        step = numbers[3] if len(numbers) > 3 else 1
        return first[numbers[0] : numbers[1] : step] if step else None

    def _formulas(self, name: str) -> _Sizes | None:
        if name in self._known:
            return self._known[name]
        values = self._constants.get(name)
        if values is None or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
            return None
        return [_constant(value) for value in values.reshape(-1).tolist()]

    def _shape(self, node: onnx.NodeProto) -> _Sizes | None:
        shape = self._shapes.get(node.input[0])
        if shape is None:
            return None
        start, stop = (
            next((a.i for a in node.attribute if a.name == name), default)
            for name, default in (("start", 0), ("end", len(shape)))
        )
        return [self._dimension(dimension) for dimension in shape[start:stop]]

    def _dimension(self, dimension: object) -> Formula:
        if isinstance(dimension, int):
            return _constant(dimension)
        text = str(dimension)

        def size(sizes: Sizes) -> int:
            # A dimension that is in no terms of the axes decides nothing that can be tried.
            try:
                return dimension_size(text, dict(sizes))
            except (DimensionError, KeyError) as error:
                raise ArithmeticError(text) from error

        return size

    def _compare(self, node: onnx.NodeProto, name: str) -> None:
        sides = [self._formulas(each) for each in node.input]
        if any(each in self._known for each in node.input):
            if sides[0] and sides[1] and len(sides[0]) == len(sides[1]):
                for one, other in zip(sides[0], sides[1], strict=True):
                    self._decide(node, name, one, other)
            return
        one, other = node.input
        self._threshold(node, one, other)
        self._threshold(node, other, one)

    def _decide(self, node: onnx.NodeProto, name: str, one: Formula, other: Formula) -> None:
        compare = COMPARISONS[name]
        self.sizes.append(
            SizeDecision(_place(node), lambda sizes: compare(one(sizes), other(sizes)))
        )

    def _threshold(self, node: onnx.NodeProto, tensor: str, limit: str) -> None:
        origin, number = self._origins.get(tensor), self._number(limit)
        if origin is None or number is None or origin[1] == 0:
            return
        name, scale, offset = origin
        exact = (scale, offset) == (1.0, 0.0)
        self.thresholds.append(Threshold(name, (number - offset) / scale, exact, _place(node)))

    def _number(self, name: str) -> float | None:
        values = self._constants.get(name)
        if values is None or values.size != 1 or values.dtype.kind not in "iufb":
            return None
        return float(values.reshape(()))


def _constant(value: int) -> Formula:
    return lambda _: value


def _place(node: onnx.NodeProto) -> str:
    return f"node {node.name or node.output[0]} ({node.op_type})"

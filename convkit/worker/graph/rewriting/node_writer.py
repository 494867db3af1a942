"""Writes nodes in front of a node that they take the place of."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import free_name
from convkit.worker.graph.operators.formulas import Attributes, FormulaWriter, formal, schema

Attribute = int | float | str | Sequence[int]
# A value, or a constant: numbers are of the type of the operator's other operands.
Operand: TypeAlias = ir.Value | float | Sequence[int] | None


class NodeWriter(FormulaWriter[ir.Value]):
    """Inserts nodes into a graph in front of one of its nodes.

    New values and nodes are named after `at`, uniquely among `names`, and have its metadata.
    `opset` is the model's version of ONNX's operators: 13 or later, since the forms of its
    operators are the ones written.
    """

    def __init__(self, at: ir.Node, names: set[str | None], opset: int) -> None:
        assert at.graph is not None
        self.opset = opset
        self._at = at
        self._graph = at.graph
        self._names = names

    def free(self, name: str) -> str:
        """Return a unique name, and reserve it."""
        return free_name(name, self._names)

    def op(
        self,
        operator: str,
        inputs: Sequence[Operand],
        dtype: ir.DataType | None = None,
        **attributes: Attribute,
    ) -> ir.Value:
        """Return the only output of a new node; its element type is that which ONNX defines, unless
        given.
        """
        values = [
            each
            if each is None or isinstance(each, ir.Value)
            else self.constant(np.array(each, _number_type(operator, place, inputs)))
            for place, each in enumerate(inputs)
        ]
        kind = dtype or _result_type(operator, values, attributes)
        return self.node(operator, values, [kind], attributes)[0]

    def written(
        self, operator: str, operands: list[Any], attributes: Attributes, inner: str
    ) -> ir.Value:
        """Add a node of a formula."""
        del inner
        return self.op(operator, operands, None, **attributes)

    def node(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        dtypes: Sequence[ir.DataType],
        attributes: Mapping[str, Attribute] | None = None,
        domain: str = "",
    ) -> Sequence[ir.Value]:
        """Return the outputs of a new node, one for each element type."""
        name = free_name(f"{self._at.name or self._at.op_type}/{operator}", self._names)
        outputs = [
            ir.Value(name=free_name(f"{name}.{place}", self._names), type=ir.TensorType(dtype))
            for place, dtype in enumerate(dtypes)
        ]
        given = ir.convenience.convert_attributes(dict(attributes or {}))
        node = ir.Node(domain, operator, inputs, given, outputs=outputs, name=name)
        node.metadata_props.update(self._at.metadata_props)
        self._graph.insert_before(self._at, node)
        return outputs

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return a value in another element type, with the same shape."""
        made = self.op("Cast", [value], dtype, to=int(dtype))
        made.shape = value.shape
        return made

    def constant(self, array: np.ndarray) -> ir.Value:
        """Return a constant."""
        tensor = ir.tensor(array)
        name = free_name(f"{self._at.name or self._at.op_type}/constant", self._names)
        output = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        node = ir.Node(
            "", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[output], name=name
        )
        self._graph.insert_before(self._at, node)
        return output

    def copied(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType,
        attributes: Sequence[ir.Attr],
    ) -> ir.Value:
        """Return the only output of a new node with attributes of another node."""
        value = self.op(operator, inputs, dtype)
        node = value.producer()
        assert node is not None
        for attribute in attributes:
            node.attributes.add(attribute)
        return value

    def integers(self, *numbers: int) -> ir.Value:
        """Return a constant vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def replace(self, outputs: Sequence[ir.Value | None]) -> None:
        """Remove the node; what read its outputs reads the given values, which get their names."""
        for before, after in zip(self._at.outputs, outputs, strict=False):
            if after is None:
                continue
            name, kind, shape = before.name, before.type, before.shape
            ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)
            before.name = free_name(f"{name}.before", self._names)
            after.name, after.type, after.shape = name, kind, shape
        self._graph.remove(self._at, safe=True)


def _number_type(operator: str, place: int, inputs: Sequence[Operand]) -> np.dtype:
    """Return the type of numbers among an operator's inputs: that of an input that must have the
    same, or int64.
    """
    wanted = formal(operator, place).type_str
    for other, value in enumerate(inputs):
        if isinstance(value, ir.Value) and formal(operator, other).type_str == wanted:
            return np.dtype((value.dtype or ir.DataType.INT64).numpy())
    return np.dtype(np.float32 if isinstance(inputs[place], float) else np.int64)


def _result_type(
    operator: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Attribute]
) -> ir.DataType:
    """Return the element type that ONNX defines for an operator's result."""
    if "to" in attributes:
        return ir.DataType(attributes["to"])
    result = schema(operator).outputs[0]
    if len(result.types) == 1:
        return ir.DataType[_element(next(iter(result.types)))]
    for place, value in enumerate(inputs):
        if value is not None and formal(operator, place).type_str == result.type_str:
            assert value.dtype is not None
            return value.dtype
    raise ValueError(f"{operator} does not say which type its result has")


def _element(text: str) -> str:
    """Return the name of an element type as in `tensor(int64)`."""
    return text.removeprefix("tensor(").removesuffix(")").upper()

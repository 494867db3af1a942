"""Builds the ONNX nodes that compute one value.

Formulas say what to compute: `Mul(x, Sigmoid(x))`.
"""

import ast
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import defs, helper

# Of the operators that are written.
OPSET = 20
# Between a value's name and that of what is computed for it.
INSIDE = "//"

# The name of a value, or a constant: whole numbers in a list, floats otherwise.
Operand: TypeAlias = str | float | Sequence[int] | np.ndarray
# By name, whatever ONNX takes.
Attributes: TypeAlias = dict[str, Any]


@dataclasses.dataclass
class NodeBuilder:
    """Builds nodes that compute `out`, and those inside it, which are named after it.

    `nodes` are in order, `constants` by name. Builders of several values may share both.
    """

    out: str
    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    constants: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    _own: set[str] = dataclasses.field(default_factory=set, init=False, repr=False)

    def write(
        self,
        operator: str,
        *inputs: Operand,
        inner: str = "",
        outputs: Sequence[str] = (),
        **attributes: Any,  # noqa: ANN401 - what ONNX takes; None for its default
    ) -> str:
        """Add a node, and return the name of what it computes first: `out`, unless a name `inner`
        to it or several `outputs` are given.
        """
        made = list(outputs) or [self.inner(inner) if inner else self.out]
        read = [
            each if isinstance(each, str) else self.constant(_formal(operator, place), each)
            for place, each in enumerate(inputs)
        ]
        self.nodes.append(helper.make_node(operator, read, made, name=made[0], **attributes))
        return made[0]

    def compute(self, formula: str, *, inner: str = "", **operands: Operand) -> str:
        """Add the nodes of a formula: operators applied to `operands` by name, and to numbers.

        Equal parts are computed once. Returns the name of the result.
        """
        return self._part(parsed(formula), operands, {}, inner)

    def _part(
        self, part: ast.expr, operands: dict[str, Operand], done: dict[str, str], inner: str
    ) -> str:
        assert isinstance(part, ast.Call)
        assert isinstance(part.func, ast.Name)
        operator = part.func.id
        read: list[Operand] = []
        for place, each in enumerate(part.args):
            if isinstance(each, ast.Call):
                text = ast.unparse(each)
                if text not in done:
                    done[text] = self._part(each, operands, done, self._free(_word(each)))
                read.append(done[text])
            elif isinstance(each, ast.Name):
                given = operands.get(each.id)
                read += self.operand(operator, place, each.id) if given is None else [given]
            else:
                read.append(ast.literal_eval(each))
        attributes: Attributes = {
            str(key.arg): self.attribute(operator, str(key.arg), key.value.id)
            if isinstance(key.value, ast.Name)
            else ast.literal_eval(key.value)
            for key in part.keywords
        }
        return self.write(operator, *read, inner=inner, **attributes)

    def operand(self, operator: str, place: int, name: str) -> list[Operand]:
        """Return what a name in a formula stands for that is not among its operands."""
        raise KeyError(f"{name} of {operator}, input {place}")

    def attribute(self, operator: str, attribute: str, name: str) -> object:
        """Return what a name stands for as the value of an attribute."""
        raise KeyError(f"{name} of {operator}, {attribute}")

    def constant(self, suffix: str, values: Operand) -> str:
        """Add a constant of this value's own, and return its name."""
        held = np.asarray(values)
        if not isinstance(values, np.ndarray | np.generic):
            held = held.astype(np.float32 if isinstance(values, float) else np.int64)
        name = self.inner(self._free(suffix or (f"{held:g}" if held.ndim == 0 else "operand")))
        self.constants[name] = held
        return name

    def inner(self, suffix: str) -> str:
        """Return the name of a value between this one's nodes."""
        return f"{self.out}{INSIDE}{suffix}"

    def _free(self, suffix: str) -> str:
        """Return a suffix that this value's nodes do not have yet."""
        number, free = 2, suffix
        while free in self._own:
            number, free = number + 1, f"{suffix} {number}"
        self._own.add(free)
        return free


@functools.cache
def parsed(formula: str) -> ast.expr:
    """Return a formula's expression."""
    return ast.parse(formula, mode="eval").body


@functools.cache
def schema(operator: str) -> defs.OpSchema:
    """Return ONNX's own definition of an operator."""
    return defs.get_schema(operator, OPSET, "")


def formal(operator: str, place: int) -> defs.OpSchema.FormalParameter:
    """Return the definition of an operator's input; the last may stand for several."""
    inputs = schema(operator).inputs
    return inputs[min(place, len(inputs) - 1)]


def element_type(dtype: np.dtype) -> int:
    """Return ONNX's number for numpy's type of elements."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def last_two_swapped(rank: int) -> list[int]:
    """Return the axes of a tensor with the last two in the other order."""
    return [*range(rank - 2), rank - 1, rank - 2]


def _formal(operator: str, place: int) -> str:
    """Return the word for a constant operand: ONNX's, unless that is a letter, as for numbers."""
    name = formal(operator, place).name.lower()
    return name if len(name) > 1 else ""


def _word(part: ast.Call) -> str:
    return ast.unparse(part.func).lower()

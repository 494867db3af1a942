"""Formulas of ONNX's operators, such as `Mul(x, Sigmoid(x))`, and ONNX's definitions of them."""

import abc
import ast
import functools
from typing import Any, Generic, TypeAlias, TypeVar

from onnx import defs

# Of the operators that are written.
OPSET = 20

# By name, whatever ONNX takes.
Attributes: TypeAlias = dict[str, Any]
# What the nodes of a graph compute: a name, or an object.
Value = TypeVar("Value")


class FormulaWriter(abc.ABC, Generic[Value]):
    """Writes the nodes of formulas: operators applied to operands by name, and to numbers.

    Numbers and lists of them are constants, as are arrays among the operands.
    """

    def compute(self, formula: str, *, inner: str = "", **operands: Any) -> Value:  # noqa: ANN401 - values, or constants
        """Add the nodes of a formula, and return its result. Equal parts are computed once.

        `inner` names the result if it is not the whole one.
        """
        return self._part(_parsed(formula), operands, {}, inner)

    def _part(
        self, part: ast.expr, operands: Attributes, done: dict[str, Value], inner: str
    ) -> Value:
        assert isinstance(part, ast.Call)
        assert isinstance(part.func, ast.Name)
        operator = part.func.id
        read: list[object] = []
        for place, each in enumerate(part.args):
            if isinstance(each, ast.Call):
                text = ast.unparse(each)
                if text not in done:
                    word = self.inner_name(ast.unparse(each.func).lower())
                    done[text] = self._part(each, operands, done, word)
                read.append(done[text])
            elif isinstance(each, ast.Name):
                given = operands.get(each.id)
                read += self.operand(operator, place, each.id) if given is None else [given]
            else:
                read.append(ast.literal_eval(each))
        attributes = {
            str(key.arg): self.attribute(operator, str(key.arg), key.value.id)
            if isinstance(key.value, ast.Name)
            else ast.literal_eval(key.value)
            for key in part.keywords
        }
        return self.written(operator, read, attributes, inner)

    @abc.abstractmethod
    def written(
        self, operator: str, operands: list[Any], attributes: Attributes, inner: str
    ) -> Value:
        """Add a node, and return what it computes."""

    def inner_name(self, word: str) -> str:
        """Return the name of a part, whose operator is `word`."""
        return word

    def operand(self, operator: str, place: int, name: str) -> list[Any]:
        """Return what a name in a formula stands for that is not among its operands."""
        raise KeyError(f"{name} of {operator}, input {place}")

    def attribute(self, operator: str, attribute: str, name: str) -> object:
        """Return what a name stands for as the value of an attribute."""
        raise KeyError(f"{name} of {operator}, {attribute}")


@functools.cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


@functools.cache
def schema(operator: str) -> defs.OpSchema:
    """Return ONNX's own definition of an operator."""
    return defs.get_schema(operator, OPSET, "")


def formal(operator: str, place: int) -> defs.OpSchema.FormalParameter:
    """Return the definition of an operator's input; the last may stand for several."""
    inputs = schema(operator).inputs
    return inputs[min(place, len(inputs) - 1)]

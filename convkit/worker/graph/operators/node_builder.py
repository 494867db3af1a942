"""Builds the ONNX nodes that compute one value, and the constants that they need."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper

from convkit.worker.graph.operators.formulas import Attributes, FormulaWriter, formal

# Between a value's name and that of what is computed for it.
INSIDE = "//"

# The name of a value, or a constant: whole numbers in a list, floats otherwise.
Operand: TypeAlias = str | float | Sequence[int] | np.ndarray


@dataclasses.dataclass
class NodeBuilder(FormulaWriter[str]):
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

    def written(
        self, operator: str, operands: list[Any], attributes: Attributes, inner: str
    ) -> str:
        """Add a node of a formula."""
        return self.write(operator, *operands, inner=inner, **attributes)

    def inner_name(self, word: str) -> str:
        """Return the name of a part of a formula."""
        return self._free(word)

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

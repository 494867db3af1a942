"""One operation of a model, and what its translation reads of it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from convkit.worker.graph.operators.formulas import formal, schema
from convkit.worker.graph.operators.node_builder import (
    INSIDE,
    NodeBuilder,
    Operand,
    element_type,
    last_two_swapped,
)

# Ends the name of a weight whose axes ONNX has in another order.
TURNED = f"{INSIDE}turned"
_WHOLE = "tensor(int64)"


class NotTranslatedError(Exception):
    """An operation has no translation, or not with these arguments."""


@dataclasses.dataclass(frozen=True)
class SourceStep:
    """One operation of a model: `arguments` are values by name, `of_sizes` that it reads the sizes
    of its arguments alone, `settings` what it computes with that is not a tensor.
    """

    kind: str
    results: tuple[str, ...]
    arguments: Mapping[str, str | tuple[str, ...]]
    settings: Mapping[str, Any]
    of_sizes: bool = False


@dataclasses.dataclass(kw_only=True)
class SourceOperation(NodeBuilder):
    """Builds what an operation computes. Arguments that shape a result (axes, sizes, modes) are
    read as values, the tensors that it computes with by name.

    `values` holds every value of the case by name, floats as float32.

    A formula's names are the operation's arguments and settings: ONNX's definition of the operator
    says which of them are whole numbers, and which may be left out.
    """

    step: SourceStep
    values: Mapping[str, np.ndarray]

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the results."""
        return self.step.results

    def translate(self, translation: "Translation") -> None:
        """Write the nodes of a translation."""
        if isinstance(translation, str):
            self.compute(translation)
        else:
            translation(self)

    def has(self, name: str) -> bool:
        """Say whether an argument is given."""
        return name in self.step.arguments

    def tensor(self, name: str) -> str:
        """Return the name of an argument's tensor."""
        given = self.step.arguments.get(name)
        if not isinstance(given, str):
            raise NotTranslatedError(f"{self.step.kind} without {name}")
        return given

    def tensors(self, *names: str) -> list[str]:
        """Return the names of the tensors of those arguments that are given."""
        given = [self.step.arguments[name] for name in names if self.has(name)]
        return [name for each in given for name in ([each] if isinstance(each, str) else each)]

    def value(self, name: str) -> np.ndarray:
        """Return what an argument's tensor holds in this case."""
        tensor = self.tensor(name)
        if tensor not in self.values:
            raise NotTranslatedError(f"{self.step.kind}: {name} has no value")
        return self.values[tensor]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an argument in this case."""
        return self.value(name).shape

    def result(self, place: int = 0) -> np.ndarray:
        """Return what a result is in this case."""
        return self.values[self.results[place]]

    def given(self, name: str, default: object = None) -> Any:  # noqa: ANN401 - what a model writes
        """Return a setting, or what an argument holds; the default if there is neither."""
        setting = self.step.settings.get(name)
        if setting is not None:
            return setting
        if default is not None and not self.has(name):
            return default
        return self.value(name)

    def integers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        """Return an argument or a setting as integers."""
        return [int(each) for each in np.asarray(self.given(name, default)).reshape(-1)]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an argument or a setting as an integer."""
        return int(np.asarray(self.given(name, default)).item())

    def number(self, name: str, default: float | None = None) -> float:
        """Return an argument or a setting as a number."""
        return float(np.asarray(self.given(name, default)).item())

    def flag(self, name: str) -> bool:
        """Return an argument or a setting as a boolean, False if absent."""
        return bool(self.integer(name, 0))

    def axes(self, name: str, of: str) -> list[int]:
        """Return the axes of a tensor that an argument names, in order, all if it is absent."""
        rank = len(self.shape(of))
        return sorted({axis % rank for axis in self.integers(name, range(rank))})

    def text(self, name: str, default: str = "") -> str:
        """Return a setting that is a text, such as a mode, in small letters."""
        return str(self.step.settings.get(name, default)).lower()

    def one_of(self, words: Mapping[str, str], name: str, default: str = "") -> str:
        """Return ONNX's word for that of a setting."""
        word = self.text(name, default)
        if word not in words:
            raise NotTranslatedError(f"{name} {word}")
        return words[word]

    def cast(self, tensor: Operand, to: str = "", inner: str = "", place: int = 0) -> str:
        """Write a value in the type of a result.

        float16 is written as float32: its rounding is the precision's, not the model's.
        """
        kind = element_type(self.result(place).dtype)
        return self.write("Cast", tensor, inner=inner, outputs=[to] if to else (), to=kind)

    def transposed(self, name: str, perm: Sequence[int] = ()) -> str:
        """Return an argument with other axes, by default with the last two exchanged. A constant
        stays one, under the weight's own name, by which the original's is found.
        """
        perm = perm or last_two_swapped(len(self.shape(name)))
        if self.tensor(name) in self.constants:
            return self.rearranged(name, np.ascontiguousarray(self.value(name).transpose(perm)))
        return self.write("Transpose", self.tensor(name), inner=f"turned {name}", perm=perm)

    def rearranged(self, name: str, values: np.ndarray) -> str:
        """Add a weight in ONNX's arrangement, under its own name."""
        turned = f"{self.tensor(name)}{TURNED}"
        self.constants[turned] = values
        return turned

    def operand(self, operator: str, place: int, name: str) -> list[Operand]:
        """Return an argument as an operator takes it."""
        parameter = formal(operator, place)
        if parameter.option == parameter.option.Variadic:
            return list(self.tensors(name))
        if parameter.option == parameter.option.Optional and not self.has(name):
            return [""]
        return [self.as_taken(operator, place, name)]

    def as_taken(self, operator: str, place: int, name: str) -> str:
        """Return an argument in a type that an operator takes. Sizes and axes are constants of the
        operation's own.
        """
        tensor, parameter = self.tensor(name), formal(operator, place)
        if parameter.type_str == _WHOLE and tensor in self.constants:
            return self.constant(
                parameter.name.lower(), np.atleast_1d(self.value(name)).astype(np.int64)
            )
        dtype = self.value(name).dtype
        taken = parameter.types
        if dtype.kind not in "iu" or f"tensor({dtype})" in taken or _WHOLE not in taken:
            return tensor
        return self.write("Cast", tensor, inner=name, to=element_type(np.dtype(np.int64)))

    def attribute(self, operator: str, attribute: str, name: str) -> object:
        """Return an argument or a setting as an attribute; None, which is ONNX's default, if it is
        absent.
        """
        if not self.has(name) and self.step.settings.get(name) is None:
            return None
        kind = schema(operator).attributes[attribute].type
        if kind == kind.STRING:
            return str(self.given(name))
        if kind == kind.INTS:
            return self.integers(name)
        return self.number(name) if kind == kind.FLOAT else self.integer(name)


# A formula, or what writes the nodes of an operation.
Translation: TypeAlias = str | Callable[[SourceOperation], object]

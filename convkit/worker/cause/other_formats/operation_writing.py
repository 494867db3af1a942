"""What the translation of an operation reads, and what it writes."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

# Between an operation's name and what its translation adds.
INSIDE = "//"
# Ends the name of a weight whose axes ONNX has in another order.
TURNED = f"{INSIDE}turned"


class NotTranslatedError(Exception):
    """An operation has no translation, or not with these arguments."""


@dataclasses.dataclass
class NodeWriter:
    """The graph so far: nodes in order, and constants by name."""

    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    constants: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SourceOperation:
    """One operation of a program. Arguments that shape a result (axes, sizes, modes) are read as
    values, the tensors that it computes with by name.

    `values` holds every value of the case by name, floats as float32; `settings` are arguments that
    are not tensors, such as modes.
    """

    kind: str
    results: tuple[str, ...]
    arguments: Mapping[str, str | tuple[str, ...]]
    values: Mapping[str, np.ndarray]
    settings: Mapping[str, Any]
    writer: NodeWriter

    @property
    def out(self) -> str:
        """The name of the first result."""
        return self.results[0]

    def has(self, name: str) -> bool:
        """Say whether an argument is given."""
        return name in self.arguments

    def tensor(self, name: str) -> str:
        """Return the name of an argument's tensor."""
        given = self.arguments.get(name)
        if not isinstance(given, str):
            raise NotTranslatedError(f"{self.kind} without {name}")
        return given

    def tensors(self, name: str) -> list[str]:
        """Return the names of several tensors."""
        given = self.arguments[name]
        return [given] if isinstance(given, str) else list(given)

    def value(self, name: str) -> np.ndarray:
        """Return what an argument's tensor holds in this case."""
        tensor = self.tensor(name)
        if tensor not in self.values:
            raise NotTranslatedError(f"{self.kind}: {name} has no value")
        return self.values[tensor]

    def result(self, place: int = 0) -> np.ndarray:
        """Return what a result is in this case."""
        return self.values[self.results[place]]

    def integers(self, name: str) -> list[int]:
        """Return an argument as integers."""
        return [int(each) for each in self.value(name).reshape(-1)]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an argument as an integer."""
        if default is not None and not self.has(name):
            return default
        return int(self.value(name).item())

    def number(self, name: str) -> float:
        """Return an argument as a number."""
        return float(self.value(name).item())

    def flag(self, name: str) -> bool:
        """Return an argument as a boolean, False if absent."""
        return self.has(name) and bool(self.value(name).item())

    def text(self, name: str, default: str) -> str:
        """Return an argument that is a text, such as a mode."""
        return str(self.settings.get(name, default))

    def write(
        self,
        operator: str,
        *inputs: str,
        to: str | tuple[str, ...] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a node, and return the name of what it computes first: `to`, by default the
        operation's result.
        """
        made = to if isinstance(to, tuple) else (to or self.out,)
        node = helper.make_node(
            operator, list(inputs), list(made), name=made[0], **(attributes or {})
        )
        self.writer.nodes.append(node)
        return made[0]

    def constant(self, suffix: str, values: np.ndarray) -> str:
        """Add a constant of this operation's own, and return its name."""
        name = f"{self.out}{INSIDE}{suffix}"
        self.writer.constants[name] = values
        return name

    def whole(self, suffix: str, numbers: "list[int] | tuple[int, ...]") -> str:
        """Add integers as a constant, the form of ONNX's shapes and axes."""
        return self.constant(suffix, np.asarray(numbers, np.int64))

    def inner(self, suffix: str) -> str:
        """Return the name of a value between this operation's nodes."""
        return f"{self.out}{INSIDE}{suffix}"

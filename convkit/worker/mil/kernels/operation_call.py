"""A kernel's input: one call of an operation, with typed access to its arguments by name."""

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TypeAlias

import torch

from convkit.worker.mil.element_values import TensorList, Value
from convkit.worker.mil.program_errors import EvaluationError

Argument: TypeAlias = Value | tuple[Value, ...]

# A nested block as a function of its inputs; the surrounding variables are visible to it.
RunBlock = Callable[[Sequence[Value]], list[Value]]


@dataclasses.dataclass(frozen=True)
class OperationCall:
    """One call. `arguments` contains those present, including defaults; `results` is the expected
    number of results.

    `types` are the results' declared element types. `states` are the values that persist between
    calls, by state name; `state_names` maps arguments to states.
    """

    arguments: Mapping[str, Argument]
    results: int = 1
    types: tuple[torch.dtype | None, ...] = ()
    blocks: tuple[RunBlock, ...] = ()
    states: MutableMapping[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    state_names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a required tensor."""
        value = self.arguments.get(name)
        if not isinstance(value, torch.Tensor):
            raise EvaluationError(f"the argument {name} is not a tensor")
        return value

    def optional(self, name: str) -> torch.Tensor | None:
        """Return a tensor, or None if absent."""
        return self.tensor(name) if name in self.arguments else None

    def values(self, name: str) -> tuple[Value, ...]:
        """Return a variable number of values."""
        value = self.arguments.get(name, ())
        return value if isinstance(value, tuple) else (value,)

    def tensors(self, name: str) -> list[torch.Tensor]:
        """Return a variable number of tensors."""
        found = [value for value in self.values(name) if isinstance(value, torch.Tensor)]
        if len(found) != len(self.values(name)):
            raise EvaluationError(f"the argument {name} holds something that is not a tensor")
        return found

    def tensor_list(self, name: str) -> TensorList:
        """Return a required list."""
        value = self.arguments.get(name)
        if not isinstance(value, TensorList):
            raise EvaluationError(f"the argument {name} is not a list")
        return value

    def integer(self, name: str) -> int:
        """Return a required integer."""
        return int(self.tensor(name).item())

    def integers(self, name: str) -> list[int]:
        """Return required integers."""
        return [int(each) for each in self.tensor(name).reshape(-1).tolist()]

    def optional_integers(self, name: str) -> list[int] | None:
        """Return integers, or None if absent."""
        return self.integers(name) if name in self.arguments else None

    def number(self, name: str) -> float:
        """Return a required number."""
        return float(self.tensor(name).item())

    def flag(self, name: str) -> bool:
        """Return a boolean, False if absent."""
        return name in self.arguments and bool(self.tensor(name).item())

    def flags(self, name: str, count: int) -> list[bool]:
        """Return `count` booleans, all False if absent."""
        return (
            [bool(each) for each in self.integers(name)]
            if name in self.arguments
            else [False] * count
        )

    def text(self, name: str, default: str = "") -> str:
        """Return a string, such as a mode."""
        value = self.arguments.get(name, default)
        if not isinstance(value, str):
            raise EvaluationError(f"the argument {name} is not a text")
        return value


# Computes an operation's results from operands in float32 or float64 (see `arithmetic.py`); the
# evaluator rounds them to their declared types.
Kernel = Callable[[OperationCall], Value | Sequence[Value]]

"""What a kernel is given: one call of an operation, its arguments by name, read as the types that
they must have.
"""

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TypeAlias

import torch

from convkit.mil.errors import EvaluationError
from convkit.mil.values import TensorList, Value

Argument: TypeAlias = Value | tuple[Value, ...]

# A nested block as a function of its inputs; it sees the variables around it.
RunBlock = Callable[[Sequence[Value]], list[Value]]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call. `arguments` holds those that are given, defaults included; `results` is how many
    are expected.

    `types` are the element types that the results are declared with. `states` is what the program
    carries from call to call, by state name; `state_names` says which argument is which state.
    """

    arguments: Mapping[str, Argument]
    results: int = 1
    types: tuple[torch.dtype | None, ...] = ()
    blocks: tuple[RunBlock, ...] = ()
    states: MutableMapping[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    state_names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor that must be given."""
        value = self.arguments.get(name)
        if not isinstance(value, torch.Tensor):
            raise EvaluationError(f"the argument {name} is not a tensor")
        return value

    def optional(self, name: str) -> torch.Tensor | None:
        """Return a tensor, or None where it is not given."""
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
        """Return a list that must be given."""
        value = self.arguments.get(name)
        if not isinstance(value, TensorList):
            raise EvaluationError(f"the argument {name} is not a list")
        return value

    def integer(self, name: str) -> int:
        """Return a whole number that must be given."""
        return int(self.tensor(name).item())

    def integers(self, name: str) -> list[int]:
        """Return whole numbers that must be given."""
        return [int(each) for each in self.tensor(name).reshape(-1).tolist()]

    def optional_integers(self, name: str) -> list[int] | None:
        """Return whole numbers, or None where they are not given."""
        return self.integers(name) if name in self.arguments else None

    def number(self, name: str) -> float:
        """Return a number that must be given."""
        return float(self.tensor(name).item())

    def flag(self, name: str) -> bool:
        """Return a truth value, False where it is not given."""
        return name in self.arguments and bool(self.tensor(name).item())

    def flags(self, name: str, count: int) -> list[bool]:
        """Return so many truth values, all False where they are not given."""
        return (
            [bool(each) for each in self.integers(name)]
            if name in self.arguments
            else [False] * count
        )

    def text(self, name: str, default: str = "") -> str:
        """Return a text, such as a mode."""
        value = self.arguments.get(name, default)
        if not isinstance(value, str):
            raise EvaluationError(f"the argument {name} is not a text")
        return value


# A kernel computes an operation's results, in float32 where it computes; the evaluator rounds them
# as declared.
Kernel = Callable[[Call], Value | Sequence[Value]]

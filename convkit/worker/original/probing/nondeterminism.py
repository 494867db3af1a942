"""Where an original that is not the same twice changes: the first operation that differs between
two runs on the same inputs.
"""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.original.operation_places import PlacedOperations, leaves_memory, operator_name
from convkit.worker.original.torch_dtypes import to_array

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# What a change is: an operation draws random values; Python hands it other numbers each time; it
# reads what an earlier call has left behind.
Change = Literal["random", "number", "state"]

_HOW: dict[Change, str] = {
    "random": "draws random values",
    "number": "uses a different number at every call",
    "state": "reads or writes what earlier calls left behind",
}
_FIX: dict[Change, str] = {
    "random": "Put that layer into eval mode (pass training=self.training to functional.dropout),"
    " or make the noise an input of the model.",
    "number": "Make that number a constant or an input of the model: a graph keeps the one that it"
    " was exported with.",
    "state": "Return the state as an output and accept it as an input: a graph keeps nothing"
    " between calls.",
}


@dataclasses.dataclass(frozen=True)
class Unsteady:
    """The first operation that differs between two runs, with its module's path and line."""

    change: Change
    operator: str
    module: str
    source: str | None

    def finding(self) -> Finding:
        """Return N303 as an error: no conversion can match such a model."""
        return Finding(
            "N303",
            "the original returns different outputs when it runs again on the same inputs:"
            f" {self.operator} ({module_at(self.module, self.source)}) {_HOW[self.change]}. No"
            " conversion can match it",
            Place(module=self.module or None, source=self.source),
            {"change": self.change, "operator": self.operator},
            Remedy(_FIX[self.change]),
            severity="error",
        )


def first_change(
    module: "ContractModule", inputs: Sequence[torch.Tensor], root: str | None
) -> Unsteady | None:
    """Run a model twice on copies of the inputs; return the first operation that differs, or None
    if the outputs are equal.

    `root` is the folder of the model's own source files. Raises the module's exceptions.
    """
    runs = [_Run(module, root) for _ in range(2)]
    outputs = []
    for each in runs:
        with torch.no_grad(), each:
            outputs.append(_digests(module(*(tensor.clone() for tensor in inputs))))
    if outputs[0] == outputs[1]:
        return None
    for one, other in zip(runs[0].steps, runs[1].steps, strict=False):
        if one != other:
            return Unsteady(_change(one, other), one.operator, one.module, one.source)
    return None


def unsteady_finding(
    module: "ContractModule", inputs: Sequence[torch.Tensor], root: str | None
) -> Finding | None:
    """Return N303 for a model that changes between two runs; None for a steady one, and for one
    that refuses the inputs.
    """
    try:
        change = first_change(module, inputs, root)
    except Exception:  # noqa: BLE001 - the model is the user's code: it can raise anything
        return None
    return change.finding() if change is not None else None


@dataclasses.dataclass(frozen=True)
class _Step:
    """One operation: what it read and computed, as digests."""

    operator: str
    module: str
    source: str | None
    numbers: tuple[object, ...]
    draws: bool
    computed: tuple[int, ...]
    # An operation may read an empty tensor, which is uninitialized memory.
    read: tuple[int, ...] = dataclasses.field(compare=False)


def _change(one: _Step, other: _Step) -> Change:
    if (one.operator, one.source) != (other.operator, other.source) or one.numbers != other.numbers:
        return "number"
    return "random" if one.draws or one.read == other.read else "state"


class _Run(PlacedOperations):
    """Records the operations of one run."""

    def __init__(self, module: "ContractModule", root: str | None) -> None:
        super().__init__(module, root)
        self.steps: list[_Step] = []

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        leaves = tree_leaves((args, kwargs))
        read = _digests(leaves)
        found = function(*args, **kwargs)
        source, module = self.place()
        numbers = tuple(each for each in leaves if isinstance(each, bool | int | float))
        operator = operator_name(function)
        draws = torch.Tag.nondeterministic_seeded in function.tags
        made = () if leaves_memory(operator) else _digests(tree_leaves(found))
        self.steps.append(
            _Step(operator, module, source, tuple(map(repr, numbers)), draws, made, read)
        )
        return found


def _digests(values: Sequence[object]) -> tuple[int, ...]:
    """Return a digest of each tensor."""
    return tuple(
        zlib.crc32(to_array(each).tobytes(), each.ndim)
        for each in values
        if isinstance(each, torch.Tensor)
    )

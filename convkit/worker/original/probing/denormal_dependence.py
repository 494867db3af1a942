"""Whether an original depends on denormal numbers: what changes if they are flushed to zero, where
that begins, and whether larger constants mend it.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.worker.original.operation_places import PlacedOperations, leaves_memory, operator_name
from convkit.worker.original.probing.denormal_place import DenormalPlace, changed
from convkit.worker.process.denormal_mode import flushed_denormals, keep_denormals
from convkit.worker.process.one_thread import one_thread

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# A model whose operations compute more than this is not searched for the first that differs.
_MOST_BYTES = 1 << 29


def denormal_place(
    module: "ContractModule", inputs: Sequence[torch.Tensor], root: str | None
) -> DenormalPlace | None:
    """Run a model with and without denormals; return where the results part, or None if no
    operation's does. Raises the module's exceptions.

    `root` is the folder of the model's own source files.
    """

    def run(*, flush: bool, raised: bool = False) -> _Run:
        made = _Run(module, root, raised=raised)
        mode = flushed_denormals() if flush else contextlib.nullcontext()
        keep_denormals()
        with torch.no_grad(), one_thread(), mode, made:
            module(*(tensor.clone() for tensor in inputs))
        return made

    one, other = run(flush=False), run(flush=True)
    first = _first_change(one, other)
    if first is None:
        return None
    mended = None
    with _raised_weights(module) as weights:
        if weights or one.has_constant:
            raised = run(flush=False, raised=True), run(flush=True, raised=True)
            mended = _first_change(*raised) is None
    return DenormalPlace(first.operator, first.module, first.source, mended)


@contextlib.contextmanager
def _raised_weights(module: torch.nn.Module) -> Iterator[int]:
    """Raise every denormal weight to the smallest normal number; yield how many tensors had one."""
    keep_denormals()
    single = (
        each for each in (*module.parameters(), *module.buffers()) if each.dtype is torch.float32
    )
    small = [(each, each.detach().clone()) for each in single if _is_denormal(each.detach()).any()]
    with torch.no_grad():
        for tensor, before in small:
            tensor.copy_(_raise(before))
        try:
            yield len(small)
        finally:
            for tensor, before in small:
                tensor.copy_(before)


def _is_denormal(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor != 0) & (tensor.abs() < SMALLEST_NORMAL)


def _raise(tensor: torch.Tensor) -> torch.Tensor:
    smallest = torch.full_like(tensor, SMALLEST_NORMAL).copysign(tensor)
    return torch.where(_is_denormal(tensor), smallest, tensor)


@dataclasses.dataclass(frozen=True)
class _Step:
    """One operation, and the float32 tensors it computed."""

    operator: str
    module: str
    source: str | None
    computed: tuple[np.ndarray, ...]


class _Run(PlacedOperations):
    """Keeps what each operation of one run computes. `raised`: with the smallest normal number in
    place of smaller constants.
    """

    def __init__(self, module: "ContractModule", root: str | None, *, raised: bool) -> None:
        super().__init__(module, root)
        self.steps: list[_Step] = []
        self.has_constant = False
        self._raised = raised
        self._bytes = 0

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        source, place = self.place()
        # Python's numbers are float64, in which they are normal.
        small = [each for each in tree_leaves((args, kwargs)) if _is_small(each)]
        self.has_constant = self.has_constant or bool(small)
        if small and self._raised:
            args, kwargs = tree_map(_raised_number, (list(args), dict(kwargs)))
        found = function(*args, **kwargs)
        operator = operator_name(function)
        if not leaves_memory(operator) and self._bytes <= _MOST_BYTES:
            made = tuple(
                each.detach().numpy().copy()
                for each in tree_leaves(found)
                if isinstance(each, torch.Tensor) and each.dtype is torch.float32
            )
            self._bytes += sum(each.nbytes for each in made)
            self.steps.append(_Step(operator, place, source, made))
        return found


def _is_small(value: object) -> bool:
    return isinstance(value, float) and 0.0 < abs(value) < SMALLEST_NORMAL


def _raised_number(value: object) -> object:
    return math.copysign(SMALLEST_NORMAL, value) if _is_small(value) else value  # type: ignore[arg-type]


def _first_change(one: _Run, other: _Run) -> _Step | None:
    """Return the first operation whose results differ by more than a denormal does."""
    for mine, theirs in zip(one.steps, other.steps, strict=False):
        if (mine.operator, mine.source) != (theirs.operator, theirs.source):
            return mine  # a branch on a value went another way
        if any(changed(a, b) for a, b in zip(mine.computed, theirs.computed, strict=True)):
            return mine
    return None

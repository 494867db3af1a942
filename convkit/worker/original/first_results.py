"""Results of a run's first operations, for further runs of the same inputs that part later."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map_only

from convkit.worker.original.operation_places import written_tensors

# Bytes of results that are kept.
_MOST_KEPT = 1 << 28


class FirstResults:
    """The first operations of a run with their results: until one of some names, as many as memory
    allows, and none for which torch notes gradients. What an operation returned and another wrote
    to is as the last one left it; so nothing is kept of a run that writes to kept results later.
    """

    def __init__(self, until: Collection[str]) -> None:
        self._until = until
        self._found: list[tuple[OpOverload, object]] = []
        self._made: set[int] = set()  # memory of the results
        self._given: set[int] = set()  # of results that are views of what was there before
        self._bytes = 0
        self._is_over = False

    def __len__(self) -> int:
        return len(self._found)

    def again(self) -> Iterator[tuple[OpOverload, object]]:
        """Return an iterator over the operations, for `repeated`."""
        return iter(self._found)

    def add(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: object
    ) -> None:
        """Note an operation of the run, the next."""
        changed = [_memory(each) for each in written_tensors(function, args, kwargs)]
        in_place = len(changed) == 1 and function.name().partition(".")[0].endswith("_")
        if changed and not (in_place and changed[0] in self._made):
            self._is_over = True
        self._is_over |= function.name() in self._until
        if self._is_over or torch.is_grad_enabled():
            if not (self._made | self._given).isdisjoint(changed):
                self._found.clear()
                self._is_over = True
            return
        tensors = _tensors(result)
        self._bytes += sum(each.numel() * each.element_size() for each in tensors)
        self._is_over = self._bytes > _MOST_KEPT
        if not self._is_over:
            before = set(map(_memory, _tensors((args, kwargs)))) - self._made
            self._made |= set(map(_memory, tensors)) - before
            self._given |= set(map(_memory, tensors)) & before
            self._found.append((function, _alias(result)))


def repeated(
    known: Iterator[tuple[OpOverload, object]],
    function: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> object | None:
    """Return the result of a run's next operation if it is known; None if it has to be run."""
    if torch.is_grad_enabled():
        return None
    same, result = next(known, (None, None))
    if same is not function:
        return None
    for each in written_tensors(function, args, kwargs):
        return each  # what it wrote is there already
    return _alias(result)


def _tensors(values: object) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _alias(result: object) -> object:
    """Return an operation's result as other tensors of the same memory: torch notes on each tensor
    how it came to be, and looks whether somebody else holds it.
    """
    return tree_map_only(torch.Tensor, torch.Tensor.detach, result)

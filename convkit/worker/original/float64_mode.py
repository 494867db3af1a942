"""Runs an original in float64 from its inputs on, as a reference for what float32 rounds away."""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from convkit.worker.original.dispatch_mode import OperationMode
from convkit.worker.original.torch_dtypes import to_arrays


class NotInFloat64Error(Exception):
    """The model writes values that depend on its inputs into float32 memory."""


class _Float64(OperationMode):
    """Computes in float64 what depends on `moving` tensors.

    Everything else stays in float32, because an exporter folds it into float32 constants. Numbers
    in the code are rounded to float32 for the same reason.
    """

    def __init__(self, moving: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._known = {id(each): weakref.ref(each) for each in moving}

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        if not any(map(self._moves, tree_leaves((args, kwargs)))):
            return function(*args, **kwargs)
        writes = function._schema.is_mutable and args  # noqa: SLF001 - torch has no public way
        written = args[0] if writes else None
        if isinstance(written, torch.Tensor) and written.dtype == torch.float32:
            raise NotInFloat64Error(f"{function} writes into a float32 tensor")
        found = function(*tree_map(_wide, tuple(args)), **tree_map(_wide, dict(kwargs)))
        for each in tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self._known[id(each)] = weakref.ref(each)
        return found

    def _moves(self, value: object) -> bool:
        if not isinstance(value, torch.Tensor):
            return False
        known = self._known.get(id(value))
        return value.dtype == torch.float64 or (known is not None and known() is value)


def _wide(value: object) -> object:
    """Return an operation's argument for float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype == torch.float32 else value
    if value is torch.float32:
        return torch.float64
    return float(np.float32(value)) if isinstance(value, float) else value


def run_in_float64(
    module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], outputs: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return a module's outputs by name, computed in float64 from its float32 inputs and weights.

    The module accepts the inputs and returns the outputs in order; it is unchanged afterwards.
    Raises NotInFloat64Error, and the module's own errors if it does not accept float64.
    """
    try:
        return _run(module, inputs, outputs)
    except (
        RuntimeError,
        ValueError,
    ):  # recurrent layers compare their input's type with a weight's
        with _wide_weights(module):
            return _run(module, inputs, outputs)


def _run(
    module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], outputs: Sequence[str]
) -> dict[str, np.ndarray]:
    given = [
        each.double() if each.dtype == torch.float32 else each.clone() for each in inputs.values()
    ]
    with torch.no_grad(), _Float64(given):
        found = module(*given)
    return to_arrays(outputs, found)


@contextlib.contextmanager
def _wide_weights(module: torch.nn.Module) -> Iterator[None]:
    """Hold a module's weights and buffers in float64 for a while."""
    held = {
        id(each): each
        for each in (*module.parameters(), *module.buffers())
        if each.dtype == torch.float32
    }
    kept = {key: each.data for key, each in held.items()}
    try:
        for each in held.values():
            each.data = each.data.double()
        yield
    finally:
        for key, each in held.items():
            each.data = kept[key]

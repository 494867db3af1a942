"""Where NaN begins in the original: the first operation that returns it from inputs without it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from convkit.worker.original.operation_places import PlacedOperations, leaves_memory, operator_name

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule


@dataclasses.dataclass(frozen=True)
class NanOrigin:
    """An operation that returns NaN although it reads none, with its module's path and line."""

    operator: str
    module: str
    source: str | None


def nan_origin(
    module: "ContractModule", inputs: Sequence[torch.Tensor], root: str | None
) -> NanOrigin | None:
    """Run a model on copies of the inputs; return where the last NaN that is made begins, or None.

    Raises the module's exceptions.
    """
    run = _Run(module, root)
    with torch.no_grad(), run:
        module(*(tensor.clone() for tensor in inputs))
    return run.origin


class _Run(PlacedOperations):
    def __init__(self, module: "ContractModule", root: str | None) -> None:
        super().__init__(module, root)
        self.origin: NanOrigin | None = None

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        held = _has_nan((args, kwargs))
        found = function(*args, **kwargs)
        operator = operator_name(function)
        if not held and not leaves_memory(operator) and _has_nan(found):
            source, module = self.place()
            self.origin = NanOrigin(operator, module, source)
        return found


def _has_nan(values: object) -> bool:
    return any(
        bool(torch.isnan(each).any())
        for each in tree_leaves(values)
        if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex())
    )

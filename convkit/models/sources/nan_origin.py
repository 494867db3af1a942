"""Where NaN begins in the original: the first operation that returns it from inputs without it."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from convkit.models.sources.operation_places import PlacedOperations, leaves_memory, operator_name

if TYPE_CHECKING:
    from convkit.models.sources.contract_module import ContractModule


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

    def __torch_dispatch__(
        self,
        function: Any,  # noqa: ANN401 - torch's own, untyped
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        held = _has_nan((args, kwargs or {}))
        found = function(*args, **(kwargs or {}))
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

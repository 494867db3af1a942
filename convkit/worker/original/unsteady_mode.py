"""Runs an original whose results are off by rounding, as other kernels' are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from convkit.worker.original.dispatch_mode import OperationMode

# How far results inside a model are moved: what its choices are moved by, too.
_INSIDE = (8, -8)


class Unsteady(OperationMode):
    """Moves the results of operations by what a sum in another order may be off by. A row that is
    equal throughout is left without a difference by a normalization, which then divides rounding by
    the root of its epsilon: how large that is depends on the order of its sums alone.
    """

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        found = function(*args, **kwargs)
        if any(each.alias_info is not None for each in function._schema.returns):  # noqa: SLF001 - torch's
            return found  # a view, or what it writes to
        return tree_map(
            lambda each: moved(each, _INSIDE) if isinstance(each, torch.Tensor) else each, found
        )


def moved(tensor: torch.Tensor, steps: tuple[int, int]) -> torch.Tensor:
    """Return a float32 tensor with its elements moved by either number of units in the last place,
    in turn. The parts of complex numbers are moved by units of the whole: a product's part may be
    a difference of which nothing is left.
    """
    if tensor.dtype == torch.complex64:
        parts, whole = torch.view_as_real(tensor.resolve_conj()), tensor.abs().unsqueeze(-1)
        return torch.view_as_complex(parts + whole * torch.tensor(steps) * 2.0**-23)
    if tensor.dtype != torch.float32:
        return tensor
    by = torch.tensor(steps).repeat(tensor.numel() // 2 + 1)[: tensor.numel()]
    return tensor * (1 + by.view(tensor.shape) * 2.0**-23)


def reads_numbers_alone(module: torch.nn.Module, inputs: Iterable[torch.Tensor]) -> bool:
    """Return whether a module computes with whole numbers, as of pixels and counts, which cannot be
    moved by units in the last place: nothing else goes in, and no table is looked up.
    """
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return not (
        any(each.is_floating_point() for each in inputs)
        or any(isinstance(each, tables) for each in module.modules())
    )

"""Statistics that torch returns together: its own decompositions of them fail, or are missing."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

_STATISTICS = {torch.ops.aten.std_mean: torch.std, torch.ops.aten.var_mean: torch.var}


def own_decompositions() -> dict[Any, Callable[..., object]]:
    """Return the decompositions by operator."""
    return {operator.correction: partial(_both, each) for operator, each in _STATISTICS.items()}


def with_correction(program: torch.export.ExportedProgram) -> None:
    """Write the older overloads as the one whose options have names: torch 2.13 cannot trace
    `std_mean(x, dim, unbiased, keepdim)` again, because its function accepts two arguments.
    """
    older = {
        overload: operator.correction
        for operator in _STATISTICS
        for overload in (operator.default, operator.dim)
    }
    for node in program.graph.nodes:
        if node.target in older:
            names = [each.name for each in node.target._schema.arguments]  # noqa: SLF001 - no other way
            given = dict(zip(names, node.args, strict=False)) | node.kwargs
            node.target = older[node.target]
            node.args = (given["self"], given.get("dim"))
            correction = int(given.get("unbiased", True))
            node.kwargs = {"correction": correction, "keepdim": given.get("keepdim", False)}


def _both(
    spread: Callable[..., torch.Tensor],
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(dim or range(x.ndim))
    deviation = spread(x, axes, correction=correction, keepdim=keepdim)
    return deviation, torch.mean(x, axes, keepdim=keepdim)

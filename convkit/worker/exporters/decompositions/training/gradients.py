"""What computes gradients, of models that do so in `forward`."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload


def of_torch() -> dict[Any, Callable[..., object]]:
    """Return torch's own decompositions of such operators, few of which its exporter uses."""
    return {
        target: how
        for target, how in decomposition_table.items()
        if isinstance(target, OpOverload)
        and target.namespace == "aten"
        and target.name().endswith("_backward")
    }


def of_statistics(program: torch.export.ExportedProgram) -> dict[Any, Callable[..., object]]:
    """Return torch's decompositions of norms whose means and deviations are used, too: no converter
    has more than what is normalized.
    """
    aten = torch.ops.aten
    norms = (
        aten.native_layer_norm.default,
        aten.native_group_norm.default,
        aten._native_batch_norm_legit_no_training.default,  # noqa: SLF001 - torch's name
    )
    used = {
        node.args[0].target
        for node in program.graph.nodes
        if node.target is operator.getitem and node.args[1] and node.users
    }
    return {each: decomposition_table[each] for each in norms if each in used}


def convolution(
    gradient: torch.Tensor,
    values: torch.Tensor,
    weight: torch.Tensor,
    _: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,  # noqa: FBT001 - torch's
    __: Sequence[int],
    groups: int,
    ___: Sequence[bool],
) -> tuple[torch.Tensor, None, None]:
    """The gradient of a convolution by its input (`aten.convolution_backward`): the convolution
    the other way round.
    """
    rank = weight.dim() - 2
    windows = tuple(_each(of, rank) for of in (stride, padding, dilation))
    kernel = weight.shape[2:]
    left = [0] * rank if transposed else _left_over(values, kernel, *windows)
    back = torch.ops.aten.convolution.default(
        gradient, weight, None, *windows, not transposed, left, groups
    )
    return back, None, None


def is_by_input(*args: object, **__: object) -> bool:
    """Say whether no more than the gradient by the input of a convolution is asked for."""
    *_, asked = args
    return asked == [True, False, False]


def mean(
    gradient: torch.Tensor,
    values: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *_: object,
) -> torch.Tensor:
    """The gradient of `F.avg_pool2d`: each mean's, in equal parts, at what it is the mean of."""
    kernel, edges = _each(kernel_size, 2), _each(padding, 2)
    steps = _each(stride, 2) if stride else kernel
    channels = values.shape[-3]
    shares = torch.full((channels, 1, *kernel), 1 / math.prod(kernel), dtype=values.dtype)
    windows = steps, edges, [1, 1]
    left = _left_over(values, kernel, *windows)
    transposed = True
    return torch.ops.aten.convolution.default(
        gradient, shares, None, *windows, transposed, left, channels
    )


def has_equal_parts(
    _: torch.Tensor,
    values: torch.Tensor,
    __: Sequence[int],
    ___: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,  # noqa: FBT001 - torch's
    count_include_pad: bool,  # noqa: FBT001 - torch's
    divisor_override: int | None,
) -> bool:
    """Say whether all windows of a mean are of one size."""
    return (
        isinstance(values.shape[-3], int)
        and not ceil_mode
        and (count_include_pad or not any(padding))
        and divisor_override is None
    )


def _left_over(
    values: torch.Tensor,
    kernel: Sequence[int],
    steps: Sequence[int],
    edges: Sequence[int],
    apart: Sequence[int],
) -> list[int]:
    """Return how much of each axis the windows, a step apart, leave over at its far end."""
    sizes = values.shape[values.dim() - len(kernel) :]
    return [
        (size + 2 * edge - each_apart * (width - 1) - 1) % step
        for size, width, step, edge, each_apart in zip(
            sizes, kernel, steps, edges, apart, strict=True
        )
    ]


def _each(sizes: Sequence[int], rank: int) -> list[int]:
    return list(sizes) * rank if len(sizes) == 1 else list(sizes)

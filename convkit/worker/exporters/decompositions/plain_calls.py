"""Calls that exporters refuse, or get wrong, for their arguments, as others that they take."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from convkit.worker.exporters.decompositions.counted_values import repeated_indices

# The ranks of what torch's exporter takes for attention: [batch, heads, positions, width].
_RANK = 4
_Question = Callable[..., bool]


def plain_calls() -> dict[Any, tuple[Callable[..., object], _Question]]:
    """Return by operator what replaces it, and for which calls that is necessary."""
    aten = torch.ops.aten
    trained = aten._native_batch_norm_legit_functional.default  # noqa: SLF001 - torch's name
    return {
        aten.amax.default: (functools.partial(_of_all, torch.amax), _has_no_axis),
        aten.amin.default: (functools.partial(_of_all, torch.amin), _has_no_axis),
        aten.aminmax.default: (_ends_of_all, _is_of_all),
        aten.scaled_dot_product_attention.default: (_attention, _has_other_rank),
        aten.batch_norm.default: (_of_its_batch, _is_in_training),
        aten.native_batch_norm.default: (_with_its_statistics, _is_in_training),
        trained: (_with_new_statistics, _is_in_training),
        aten.repeat_interleave.self_Tensor: (_repeated, _has_known_size),
        aten.repeat_interleave.self_int: (_repeated_alike, _has_open_count),
        aten.addbmm.default: (_sum_of_products, _always),
        aten.pad_sequence.default: (_padded, _always),
        aten.gather.default: (from_leading_rows, has_fewer_rows),
        **_shifts(),
    }


# Whole numbers for which onnxruntime has no shift, or of which torch's exporter makes signed ones.
_SHIFTED_WIDER = (torch.int16, torch.uint8)


def _shifts() -> dict[Any, tuple[Callable[..., object], _Question]]:
    """Shifts by tensors, under the one name that torch's exporter knows, and of short numbers."""
    aten = torch.ops.aten
    found: dict[Any, tuple[Callable[..., object], _Question]] = {}
    for shift, calls in (
        (torch.bitwise_left_shift, (aten.__lshift__, aten.bitwise_left_shift)),
        (torch.bitwise_right_shift, (aten.__rshift__, aten.bitwise_right_shift)),
    ):
        how = functools.partial(_shifted, shift)
        found[calls[0].Tensor] = (how, _always)
        for each in (calls[0].Scalar, calls[1].Tensor, calls[1].Tensor_Scalar):
            found[each] = (how, _is_shifted_wider)
    return found


def _is_shifted_wider(x: torch.Tensor, *_: object) -> bool:
    return x.dtype in _SHIFTED_WIDER


def _shifted(
    shift: Callable[..., torch.Tensor], x: torch.Tensor, count: torch.Tensor | int
) -> torch.Tensor:
    if not _is_shifted_wider(x):
        return shift(x, count) if isinstance(count, torch.Tensor) else NotImplemented
    if isinstance(count, torch.Tensor):
        count = count.to(torch.int32)
    return shift(x.to(torch.int32), count).to(x.dtype)


def _always(*_: object, **__: object) -> bool:
    return True


def _has_no_axis(x: torch.Tensor, dim: Sequence[int] = (), *_: object, **__: object) -> bool:
    return x.ndim > 0 and not dim


def _of_all(
    function: Callable[..., torch.Tensor],
    x: torch.Tensor,
    dim: Sequence[int] = (),
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`x.amax()`: torch's exporter asks for axes."""
    if dim:
        return NotImplemented
    return function(x, tuple(range(x.ndim)), keepdim)


def _is_of_all(x: torch.Tensor, *, dim: int | None = None, **_: object) -> bool:
    return x.ndim > 0 and dim is None


def _ends_of_all(
    x: torch.Tensor, *, dim: int | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    if dim is not None:
        return NotImplemented
    axes = tuple(range(x.ndim))
    return torch.amin(x, axes, keepdim), torch.amax(x, axes, keepdim)


def _has_other_rank(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object
) -> bool:
    """Say whether attention is over fewer axes: without heads, or without a batch."""
    ranks = {query.ndim, key.ndim, value.ndim}
    return ranks != {_RANK} and max(ranks) <= _RANK


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - torch's
    **options: Any,  # noqa: ANN401 - torch's
) -> torch.Tensor:
    """Attention with axes of one in front."""
    if not _has_other_rank(query, key, value):
        return NotImplemented
    rank = max(query.ndim, key.ndim, value.ndim)
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])

    def whole(x: torch.Tensor) -> torch.Tensor:
        x = x.expand(*leading, *x.shape[-2:])
        return x[(None,) * (_RANK - rank)]

    found = torch.nn.functional.scaled_dot_product_attention(
        *map(whole, (query, key, value)), attn_mask, dropout_p, is_causal, **options
    )
    return found[(0,) * (_RANK - rank)]


def _is_in_training(
    _: torch.Tensor,
    weight: torch.Tensor | None,  # noqa: ARG001
    bias: torch.Tensor | None,  # noqa: ARG001
    mean: torch.Tensor | None,  # noqa: ARG001
    variance: torch.Tensor | None,  # noqa: ARG001
    training: bool,  # noqa: FBT001 - torch's
    *__: object,
) -> bool:
    return training


def _of_its_batch(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,  # noqa: FBT001 - torch's
    momentum: float,
    eps: float,
    *_: object,
) -> torch.Tensor:
    """A batch norm by the statistics of its input: torch's exporter takes the trained ones."""
    if not training:
        return NotImplemented
    return _with_its_statistics(
        x, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


def _with_its_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,  # noqa: ARG001
    running_var: torch.Tensor | None,  # noqa: ARG001
    training: bool,  # noqa: FBT001 - torch's
    momentum: float,  # noqa: ARG001
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if not training:
        return NotImplemented
    axes = [axis for axis in range(x.ndim) if axis != 1]
    mean = x.mean(axes, keepdim=True)
    scale = torch.rsqrt((x - mean).square().mean(axes, keepdim=True) + eps)
    found = (x - mean) * scale
    channels = (1, -1, *[1] * (x.ndim - 2))
    if weight is not None:
        found = found * weight.reshape(channels)
    if bias is not None:
        found = found + bias.reshape(channels)
    return found, mean.reshape(-1), scale.reshape(-1)


def _with_new_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,  # noqa: FBT001 - torch's
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    if not training:
        return NotImplemented
    found = _with_its_statistics(
        x, weight, bias, running_mean, running_var, training, momentum, eps
    )
    axes = [axis for axis in range(x.ndim) if axis != 1]
    variance = x.var(axes, correction=1)
    return (
        *found,
        (1 - momentum) * running_mean + momentum * found[1],
        (1 - momentum) * running_var + momentum * variance,
    )


def _has_known_size(*_: object, output_size: int | None = None) -> bool:
    return output_size is not None


def _repeated(
    x: torch.Tensor,
    repeats: torch.Tensor,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> torch.Tensor:
    """`x.repeat_interleave` with `output_size`, which torch's exporter does not take."""
    if output_size is None:
        return NotImplemented
    places = repeated_indices(repeats, output_size=output_size)
    return x.flatten()[places] if dim is None else x.index_select(dim, places)


def _has_open_count(_: torch.Tensor, repeats: int, *__: object, **___: object) -> bool:
    return not isinstance(repeats, int)


def _repeated_alike(
    x: torch.Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> torch.Tensor:
    """`x.repeat_interleave` by an open size, which torch's exporter repeats along the first axis,
    whatever `dim` is, so that one row, or as many as there are repeats, alone are right.
    """
    del output_size
    values, axis = (x.flatten(), 0) if dim is None else (x, dim % max(x.ndim, 1))
    sizes = [*values.shape[: axis + 1], repeats, *values.shape[axis + 1 :]]
    return values.unsqueeze(axis + 1).expand(sizes).flatten(axis, axis + 1)


def _sum_of_products(
    x: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """`torch.addbmm`."""
    return beta * x + alpha * (one @ other).sum(0)


def _padded(
    sequences: Sequence[torch.Tensor],
    batch_first: bool = False,  # noqa: FBT001, FBT002 - torch's
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> torch.Tensor:
    """`pad_sequence`: torch copies the sequences into a tensor of the longest one's size, of which
    its decomposition at an open size keeps the padding alone.
    """
    longest = functools.reduce(torch.sym_max, (each.shape[0] for each in sequences))
    padded = []
    for each in sequences:
        missing = longest - each.shape[0]
        amounts = [0, missing] if padding_side == "right" else [missing, 0]
        room = [0, 0] * (each.ndim - 1) + amounts
        padded.append(torch.constant_pad_nd(each, room, padding_value))
    return torch.stack(padded, 0 if batch_first else 1)


def _shorter_axes(x: torch.Tensor, dim: int, index: torch.Tensor) -> list[int]:
    """Return the axes of which an index has fewer elements than there are, or may have."""
    if x.ndim == 0 or x.ndim != index.ndim:
        return []
    return [axis for axis in range(x.ndim) if axis != dim % x.ndim and _may_differ(x, index, axis)]


def _may_differ(x: torch.Tensor, index: torch.Tensor, axis: int) -> bool:
    return not statically_known_true(x.shape[axis] == index.shape[axis])


def has_fewer_rows(x: torch.Tensor, dim: int, index: torch.Tensor, **_: object) -> bool:
    return bool(_shorter_axes(x, dim, index))


def from_leading_rows(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    sparse_grad: bool = False,  # noqa: FBT001, FBT002, ARG001 - torch's
) -> torch.Tensor:
    """`gather` with an index for the leading rows alone: some runtimes gather from as many
    rows as the index has, and no more.
    """
    axes = _shorter_axes(x, dim, index)
    if not axes:
        return NotImplemented
    for axis in axes:
        x = x.narrow(axis, 0, index.shape[axis])
    return torch.gather(x, dim, index)

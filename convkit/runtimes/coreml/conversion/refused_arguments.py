"""Calls that coremltools refuses for their arguments, of operators that it knows: as others."""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from convkit.runtimes.coreml.conversion.high_ranks import MOST_DIMENSIONS
from convkit.worker.exporters.decompositions import (
    plain_calls,
    pooling,
    resampling,
    whole_numbers,
    windows,
)

_VOLUME = 3
# Core ML pads so many axes, the last ones, with values that are there.
_MOST_REPEATED = 2
_CUBIC = 2  # torch's number of a grid's mode


def argument_decompositions() -> dict[Any, Callable[..., object]]:
    """Return the decompositions by operator; they are right for all arguments."""
    aten = torch.ops.aten
    return {
        aten.constant_pad_nd.default: _padded,
        aten.pad.default: windows.repeating_pad,
        aten.reflection_pad3d.default: partial(windows.repeating_pad, mode="reflect"),
        aten.replication_pad3d.default: partial(windows.repeating_pad, mode="replicate"),
        aten.convolution.default: _transposed,
        aten.grid_sampler.default: resampling.sampled_at,
        aten.grid_sampler_2d.default: resampling.sampled_at,
        aten.grid_sampler_3d.default: resampling.sampled_at,
        aten.adaptive_max_pool1d.default: resampling.adaptive_maximum,
        aten.adaptive_max_pool2d.default: resampling.adaptive_maximum,
        aten.max_pool1d_with_indices.default: pooling.maximum_with_places,
        aten.max_pool2d_with_indices.default: pooling.maximum_with_places,
        aten.max_pool3d_with_indices.default: pooling.maximum_with_places,
        aten.avg_pool2d.default: pooling.average,
        aten.avg_pool3d.default: pooling.average,
        aten.split_with_sizes.default: _parts,
        aten.repeat_interleave.self_int: _repeated_in_place,
        **{
            each.default: _whole_product
            for each in (aten.mm, aten.bmm, aten.mv, aten.dot, aten.matmul)
        },
        aten.linear.default: _whole_layer,
        aten.addmm.default: _whole_sum,
        aten.native_layer_norm.default: _scaled_norm,
        aten.zeros.default: partial(_filled, 0),
        aten.ones.default: partial(_filled, 1),
        aten.new_zeros.default: partial(_filled_as, 0),
        aten.new_ones.default: partial(_filled_as, 1),
        aten.clamp.Tensor: _clamped,
        aten.gather.default: plain_calls.from_leading_rows,
        **{
            getattr(aten, name).default: whole_numbers.as_floats(name)
            for name in whole_numbers.OF_FLOATS
        },
    }


def is_refused(node: Node) -> bool:
    """Say whether coremltools refuses a call for its arguments."""
    question = _QUESTIONS.get(str(node.target))
    return question is not None and question(node)


def _is_cut_or_whole(node: Node) -> bool:
    is_cut = any(isinstance(each, int) and each < 0 for each in _listed(node.args[1]))
    kind = node.meta["val"].dtype
    return is_cut or not (kind.is_floating_point or kind.is_complex)


def _is_repeated_elsewhere(node: Node) -> bool:
    """Say whether padding repeats values in a way, or along axes, that Core ML does not, or is of
    whole numbers (see `_padded`).
    """
    mode = node.args[2] if len(node.args) > _MOST_REPEATED else node.kwargs.get("mode", "constant")
    amounts = _listed(node.args[1])
    is_elsewhere = any(amounts[2 * _MOST_REPEATED :]) or any(
        isinstance(each, int) and each < 0 for each in amounts
    )
    if mode == "constant":
        return _is_cut_or_whole(node)
    return mode == "circular" or is_elsewhere


def _is_extended(node: Node) -> bool:
    """Say whether a transposed convolution has an output padding that is wider than its padding."""
    _, _, _, _, padding, _, is_transposed, more, _ = node.args
    by_axis = list(zip(_listed(padding), _listed(more), strict=False))
    if not is_transposed or not any(_listed(more)):
        return False
    return len(by_axis) >= _VOLUME or any(extra > cut for cut, extra in by_axis)


def _returns_places(node: Node) -> bool:
    """Say whether the second result of a pooling is used."""
    return any(user.target is operator.getitem and user.args[1] == 1 for user in node.users)


def _is_open_or_returns_places(node: Node) -> bool:
    return _has_open_sizes(node) or _returns_places(node)


def _has_divisor(node: Node) -> bool:
    """Say whether a mean is divided by a number of its own, or rounds the size of a volume up."""
    _, kernel, _, _, *more = [*node.args, None, None, None, None, None][:7]
    is_ceil, includes_padding, divisor = more
    is_volume = len(_listed(kernel)) >= _VOLUME
    return divisor is not None or bool(is_volume and is_ceil and includes_padding is not False)


def _is_of_whole_numbers(node: Node) -> bool:
    return whole_numbers.is_whole(node.args[0].meta["val"])


def _has_open_sizes(node: Node) -> bool:
    image = node.args[0]
    shape = image.meta["val"].shape if isinstance(image, Node) else ()
    return any(isinstance(size, torch.SymInt) for size in shape)


def _is_volume_or_cubic(node: Node) -> bool:
    """Say whether a grid samples what coremltools has no operation for."""
    rank = len(node.args[0].meta["val"].shape) - 2
    return rank >= _VOLUME or node.args[2] == _CUBIC


def _has_most_dimensions(node: Node) -> bool:
    return len(node.args[0].meta["val"].shape) >= MOST_DIMENSIONS


def _is_part_of_a_pixel(node: Node) -> bool:
    """Say whether a factor makes an image's size no whole number, which is rounded down."""
    place = 2 if "nearest" in str(node.target) else 3  # after align_corners
    image, sizes, factors = node.args[0], node.args[1], [*node.args, None, None][place]
    if sizes is not None or factors is None or not isinstance(image, Node):
        return False
    axes = zip(image.meta["val"].shape[2:], factors, strict=True)
    return any(isinstance(size, int) and not float(size * by).is_integer() for size, by in axes)


def _has_computed_parts(node: Node) -> bool:
    """Say whether an axis is split where a computed size says."""
    return any(isinstance(each, Node) for each in _listed(node.args[1]))


def _has_shorter_index(node: Node) -> bool:
    x, dim, index = node.args[:3]
    return plain_calls.has_fewer_rows(x.meta["val"], dim, index.meta["val"])


def _is_whole(node: Node) -> bool:
    """Say whether a result is of whole numbers or bools. Of products of matrices: coremltools
    writes them, and Core ML refuses to load them.
    """
    kind = node.meta["val"].dtype
    return not (kind.is_floating_point or kind.is_complex)


def _has_computed_scale(node: Node) -> bool:
    """Say whether a layer norm's factors or offsets are computed, where coremltools takes constants
    only.
    """
    return any(isinstance(each, Node) and each.op == "call_function" for each in node.args[2:4])


def _scaled_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A layer norm that is scaled, and moved, by what is computed."""
    if weight is None and bias is None:
        return NotImplemented
    plain, mean, scale = torch.native_layer_norm(x, normalized_shape, None, None, eps)
    scaled = plain if weight is None else plain * weight
    return scaled if bias is None else scaled + bias, mean, scale


def _clamped(
    x: torch.Tensor,
    min: torch.Tensor | None = None,  # noqa: A002 - torch's
    max: torch.Tensor | None = None,  # noqa: A002 - torch's
) -> torch.Tensor:
    """`x.clamp` by tensors."""
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


def _whole_product(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A product of matrices or vectors of whole numbers, as a sum of products."""
    rows = one.unsqueeze(-2) if one.ndim == 1 else one
    columns = other.unsqueeze(-1) if other.ndim == 1 else other
    found = (rows.unsqueeze(-1) * columns.unsqueeze(-3)).sum(-2, dtype=one.dtype)
    found = found.squeeze(-1) if other.ndim == 1 else found
    return found.squeeze(-1 if other.ndim == 1 else -2) if one.ndim == 1 else found


def _whole_layer(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`F.linear` of whole numbers."""
    found = _whole_product(x, weight.mT)
    return found if bias is None else found + bias


def _whole_sum(
    x: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, beta: int = 1, alpha: int = 1
) -> torch.Tensor:
    """`torch.addmm` of whole numbers."""
    return beta * x + alpha * _whole_product(one, other)


def _repeated_in_place(
    x: torch.Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> torch.Tensor:
    """`x.repeat_interleave`, with the axes before and behind merged."""
    del output_size
    if dim is None:
        return _repeated_in_place(x.reshape(-1), repeats, 0)
    axis = dim % x.ndim
    before, behind = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    parts = x.reshape(before, x.shape[axis], 1, behind).expand(-1, -1, repeats, -1)
    return parts.reshape(*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :])


def _parts(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    """`x.split(sizes)`, slice by slice."""
    found, start = list[torch.Tensor](), 0
    for size in sizes:
        found.append(torch.ops.aten.slice(x, dim, start, start + size))
        start = start + size
    return found


def _listed(given: Any) -> Sequence[int]:  # noqa: ANN401 - an argument of torch's
    return given if isinstance(given, list | tuple) else (given,)


_QUESTIONS: dict[str, Callable[[Node], bool]] = {
    "aten.repeat_interleave.Tensor": lambda _: True,
    # Known to coremltools, which gives it one more dimension on the way.
    "aten.repeat_interleave.self_int": _has_most_dimensions,
    "aten._unique2.default": lambda _: True,
    # Known to coremltools, which leaves the antialiasing out.
    "aten._upsample_bilinear2d_aa.vec": lambda _: True,
    "aten._upsample_bicubic2d_aa.vec": lambda _: True,
    **dict.fromkeys(
        (
            f"aten.{name}.default"
            for name in ("mm", "bmm", "mv", "dot", "matmul", "linear", "addmm")
        ),
        _is_whole,
    ),
    # Known to coremltools, which fills with fractions where a size is open.
    **dict.fromkeys(
        (f"aten.{name}.default" for name in ("zeros", "ones", "new_zeros", "new_ones")), _is_whole
    ),
    **{f"aten.{name}.default": _is_of_whole_numbers for name in whole_numbers.OF_FLOATS},
    # Known to coremltools, which takes no tensors for bounds.
    "aten.clamp.Tensor": lambda _: True,
    "aten.native_layer_norm.default": _has_computed_scale,
    "aten.constant_pad_nd.default": _is_cut_or_whole,
    "aten.pad.default": _is_repeated_elsewhere,
    "aten.convolution.default": _is_extended,
    **dict.fromkeys(
        ("aten.grid_sampler.default", "aten.grid_sampler_2d.default"), _is_volume_or_cubic
    ),
    **dict.fromkeys(
        (
            *("aten.upsample_linear1d.vec", "aten.upsample_bilinear2d.vec"),
            *("aten.upsample_nearest1d.vec", "aten.upsample_nearest2d.vec"),
        ),
        _is_part_of_a_pixel,
    ),
    "aten.split_with_sizes.default": _has_computed_parts,
    "aten.gather.default": _has_shorter_index,
    **dict.fromkeys(
        ("aten.adaptive_max_pool1d.default", "aten.adaptive_max_pool2d.default"),
        _is_open_or_returns_places,
    ),
    "aten.max_pool1d_with_indices.default": _returns_places,
    "aten.max_pool2d_with_indices.default": _returns_places,
    "aten.max_pool3d_with_indices.default": _returns_places,
    "aten.avg_pool2d.default": _has_divisor,
    "aten.avg_pool3d.default": _has_divisor,
}


def _filled(number: int, size: Sequence[Any], *, dtype: Any = None, **_: object) -> torch.Tensor:  # noqa: ANN401
    kind = torch.get_default_dtype() if dtype is None else dtype
    return torch.full(size, bool(number) if kind == torch.bool else number, dtype=kind)


def _filled_as(
    number: int,
    x: torch.Tensor,
    size: Sequence[Any],
    *,
    dtype: Any = None,  # noqa: ANN401
    **_: object,
) -> torch.Tensor:
    return _filled(number, size, dtype=x.dtype if dtype is None else dtype)


def _padded(x: torch.Tensor, pad: Sequence[int], value: float = 0) -> torch.Tensor:
    """`F.pad` with a constant: what is negative is cut off first. Core ML pads fractions only, and
    coremltools makes float32 of everything else, which does not hold every whole number.
    """
    if x.dtype == torch.bool:
        return torch.constant_pad_nd(x.to(torch.float32), pad, float(value)) != 0
    is_whole = not (x.dtype.is_floating_point or x.dtype.is_complex)
    if min(pad) >= 0 and not is_whole:
        return NotImplemented
    for place, cut in enumerate(pad):
        if cut < 0:
            axis = x.ndim - 1 - place // 2
            x = x.narrow(axis, -cut if place % 2 == 0 else 0, x.shape[axis] + cut)
    if is_whole:
        return _between_blocks(x, pad, int(value))
    return torch.constant_pad_nd(x, [max(each, 0) for each in pad], value)


def _between_blocks(x: torch.Tensor, pad: Sequence[int], value: int) -> torch.Tensor:
    """Return whole numbers between blocks of a constant, as many along each axis as are added."""
    for place in range(0, len(pad), 2):
        axis = x.ndim - 1 - place // 2
        rest = x.shape[axis + 1 :]
        blocks = [
            [x.new_full([*x.shape[:axis], count, *rest], value)] if count > 0 else []
            for count in pad[place : place + 2]
        ]
        if any(blocks):
            x = torch.cat([*blocks[0], x, *blocks[1]], axis)
    return x


def _transposed(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,  # noqa: FBT001 - torch's
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """A transposed convolution whose output padding is cut from the whole, or filled with zeros."""
    if not transposed or not any(output_padding):
        return NotImplemented
    rank = x.ndim - 2
    zeros = [0] * rank
    whole = torch.ops.aten.convolution(
        x, weight, None, stride, zeros, dilation, transposed, zeros, groups
    )
    by_axis = zip(padding, output_padding, strict=True)
    cuts = [side for cut, more in by_axis for side in (-cut, more - cut)]
    sides = [side for at in range(rank)[::-1] for side in cuts[2 * at : 2 * at + 2]]
    found = torch.constant_pad_nd(whole, sides)
    return found if bias is None else found + bias.reshape(-1, *[1] * rank)

"""Functions of torch whose own code, in C++, turns the sizes of a trace into numbers. While a
module is traced, their like in operators that keep sizes open take their place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode

from convkit.worker.exporters.decompositions.matrices.elimination import LARGEST
from convkit.worker.exporters.decompositions.matrices.orthogonal_factors import least_squares
from convkit.worker.exporters.open_sizes.embedding_bags import embedding_bag
from convkit.worker.exporters.open_sizes.inverse_spectrograms import istft
from convkit.worker.exporters.open_sizes.tables_of_numbers import combinations, histogram, vander
from convkit.worker.exporters.open_sizes.triangles import tril_indices, triu_indices

_MATRIX = 2  # axes
_MOST_PARTS = 16
_Step: TypeAlias = float | torch.Tensor


class OpenSizes(TorchFunctionMode):
    """While this is active, these functions keep sizes open."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return _OWN.get(func, func)(*args, **(kwargs or {}))


def take_along_dim(
    input: torch.Tensor,  # noqa: A002 - torch's
    indices: torch.Tensor,
    dim: int | None = None,
) -> torch.Tensor:
    """`torch.take_along_dim`: all other axes are broadcast."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    sides = []
    for one, other in ((input, indices), (indices, input)):
        wanted = [
            own if axis == dim % input.ndim or _is_one(theirs) else theirs
            for axis, (own, theirs) in enumerate(zip(one.shape, other.shape, strict=True))
        ]
        sides.append(one.expand(wanted))
    return sides[0].gather(dim, sides[1])


def _is_one(size: int | torch.SymInt) -> bool:
    return isinstance(size, int) and size == 1


def kron(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's
    """`torch.kron`."""
    rank = max(input.ndim, other.ndim)
    one, two = (each[(None,) * (rank - each.ndim)] for each in (input, other))
    product = one
    for axis in range(rank):
        product = product.unsqueeze(2 * axis + 1)
        two = two.unsqueeze(2 * axis)
    sizes = [one.shape[axis] * two.shape[2 * axis + 1] for axis in range(rank)]
    return (product * two).reshape(sizes)


def gradient(
    input: torch.Tensor,  # noqa: A002 - torch's
    *,
    spacing: _Step | Sequence[_Step] = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> list[torch.Tensor]:
    """`torch.gradient`: differences of second order inside, and of `edge_order` at the ends."""
    if isinstance(dim, int):
        axes: Sequence[int] = (dim,)
    else:
        axes = range(input.ndim) if dim is None else dim
    spacings: Sequence[_Step] = (
        spacing if isinstance(spacing, list | tuple) else [spacing] * len(axes)
    )
    return [
        _differences(input, axis, step, edge_order)
        for axis, step in zip(axes, spacings, strict=True)
    ]


def _differences(x: torch.Tensor, axis: int, step: Any, edge_order: int) -> torch.Tensor:  # noqa: ANN401 - a number or a tensor
    """Return the derivative along an axis, for a distance or for coordinates."""
    last = x.movedim(axis, -1)
    if isinstance(step, torch.Tensor) and step.ndim:
        before, after = step.diff()[:-1], step.diff()[1:]
        ends = (step[1] - step[0], step[2] - step[1]), (step[-1] - step[-2], step[-2] - step[-3])
    else:
        before = after = step
        ends = (step, step), (step, step)
    inside = (
        -after / (before * (before + after)) * last[..., :-2]
        + (after - before) / (before * after) * last[..., 1:-1]
        + before / (after * (before + after)) * last[..., 2:]
    )
    first = _at_end(last[..., 0], last[..., 1], last[..., 2:3], ends[0], edge_order)
    final = -_at_end(last[..., -1], last[..., -2], last[..., -3:-2], ends[1], edge_order)
    found = torch.cat([first.unsqueeze(-1), inside, final.unsqueeze(-1)], -1)
    return found.movedim(-1, axis)


def _at_end(
    end: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    steps: tuple[Any, Any],
    edge_order: int,
) -> torch.Tensor:
    """Return the derivative at an end, inwards."""
    near, far = steps
    if edge_order == 1:
        return (second - end) / near
    return (
        -(2 * near + far) / (near * (near + far)) * end
        + (near + far) / (near * far) * second
        - near / (far * (near + far)) * third.squeeze(-1)
    )


def cov(
    input: torch.Tensor,  # noqa: A002 - torch's
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch.cov` of variables in rows, of weights that are not negative: torch reads them to see
    that.
    """
    rows = input.unsqueeze(0) if input.ndim < _MATRIX else input
    given = [each for each in (fweights, aweights) if each is not None]
    if given:
        weights = torch.stack(given).prod(0) if len(given) > 1 else given[0].to(rows.dtype)
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        lost = 1.0 if aweights is None else (weights * aweights).sum() / total
        apart = rows - mean
        found = (apart * weights) @ apart.mT / (total - correction * lost)
    else:
        apart = rows - rows.mean(1, keepdim=True)
        found = apart @ apart.mT / (rows.shape[1] - correction)
    return found.squeeze() if input.ndim < _MATRIX else found


def corrcoef(input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's
    """`torch.corrcoef` of variables in rows."""
    if input.ndim < _MATRIX:
        return cov(input) / cov(input)
    apart = input - input.mean(1, keepdim=True)
    unit = apart / apart.square().sum(1, keepdim=True).sqrt()
    return (unit @ unit.mT).clamp(-1, 1)


def fill_diagonal(
    x: torch.Tensor,
    fill_value: float,
    wrap: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`x.fill_diagonal_`, which torch traces as strides that no converter knows."""
    if x.ndim != _MATRIX or wrap:
        return x.fill_diagonal_(fill_value, wrap)
    rows, columns = (torch.arange(size) for size in x.shape)
    return x.copy_(torch.where(rows.unsqueeze(-1) == columns, fill_value, x))


def lstsq(
    A: torch.Tensor,  # noqa: N803 - torch's
    B: torch.Tensor,  # noqa: N803 - torch's
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> object:
    """`torch.linalg.lstsq` of small matrices of full rank, of which torch cannot say how large its
    results are. Their rank is what it is assumed to be; torch has residuals for "gels" only.
    """
    sizes = A.shape[-2:]
    if (
        driver in ("gelsd", "gelss")
        or not all(isinstance(each, int) for each in sizes)
        or min(sizes) > LARGEST
    ):
        return torch.linalg.lstsq(A, B, rcond, driver=driver)
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    found = least_squares(A, B.unsqueeze(-1) if is_vector else B)
    apart = (A @ found - (B.unsqueeze(-1) if is_vector else B)).square().sum(-2)
    has_residuals = driver == "gels" and sizes[0] > sizes[1]
    return torch.return_types.linalg_lstsq(
        (
            found.squeeze(-1) if is_vector else found,
            apart if has_residuals else A.new_zeros((0,)),
            torch.full(A.shape[:-2], min(sizes), dtype=torch.int64),
            A.new_zeros((0,)),
        )
    )


def linspace(
    start: Any,  # noqa: ANN401 - a number, open or not, or a tensor
    end: Any,  # noqa: ANN401
    steps: int | torch.SymInt,
    *,
    dtype: torch.dtype | None = None,
    **others: Any,  # noqa: ANN401 - where torch puts it
) -> torch.Tensor:
    """`torch.linspace` of an open number of steps. As torch's own kernel, it goes from the start in
    the first half and from the end in the second, and rounds once.
    """
    kind = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(steps, torch.SymInt) or not kind.is_floating_point:
        return torch.linspace(start, end, steps, dtype=dtype, **others)
    first, last = (_number(each, kind) for each in (start, end))
    step = (last - first) / _number(torch.sym_max(steps - 1, 1), kind)
    places = torch.arange(steps, dtype=torch.float64)
    below = first.double() + step.double() * places
    above = last.double() - step.double() * (_number(steps - 1, torch.float64) - places)
    half = _number(torch.sym_max(steps // 2, 1), torch.float64)
    return torch.where(places < half, below, above).to(kind)


def max_pool1d(
    input: torch.Tensor,  # noqa: A002 - torch's
    *window: Any,  # noqa: ANN401 - its size, stride, padding, dilation and ceil_mode
    return_indices: bool = False,
    **named: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401 - the values, or these and their places
    """`torch.nn.functional.max_pool1d`, always by the operator that returns places, too."""
    found = torch.nn.functional.max_pool1d_with_indices(input, *window, **named)
    return found if return_indices else found[0]


def chunk(
    input: torch.Tensor,  # noqa: A002 - torch's
    chunks: int,
    dim: int = 0,
) -> Sequence[torch.Tensor]:
    """`torch.chunk` of an axis that is open and has so many equal parts for any size."""
    size = input.shape[dim]
    if isinstance(size, torch.SymInt) and statically_known_true(size % chunks == 0):
        return _equal_parts(input, chunks, size // chunks, dim)
    return torch.chunk(input, chunks, dim)


def split(
    tensor: torch.Tensor, split_size_or_sections: int | torch.SymInt | Sequence[int], dim: int = 0
) -> Sequence[torch.Tensor]:
    """`torch.split` of an axis that is open, into parts as long as another open axis."""
    size, part = tensor.shape[dim], split_size_or_sections
    if isinstance(size, torch.SymInt) and isinstance(part, torch.SymInt):
        for count in range(1, _MOST_PARTS + 1):
            if statically_known_true(size == count * part):
                return _equal_parts(tensor, count, part, dim)
    found: Sequence[torch.Tensor] = torch.Tensor.split(tensor, part, dim)
    return found


def split_method(
    self: torch.Tensor, split_size: int | torch.SymInt | Sequence[int], dim: int = 0
) -> Sequence[torch.Tensor]:
    """`Tensor.split`, whose arguments have other names."""
    return split(self, split_size, dim)


def _equal_parts(
    x: torch.Tensor, count: int, size: int | torch.SymInt, dim: int
) -> tuple[torch.Tensor, ...]:
    return tuple(x.narrow(dim, part * size, size) for part in range(count))


def _number(value: Any, dtype: torch.dtype) -> torch.Tensor:  # noqa: ANN401 - a number, or a tensor
    return (
        value.to(dtype)
        if isinstance(value, torch.Tensor)
        else torch.scalar_tensor(value, dtype=dtype)
    )


_BY_NAME: dict[str, Callable[..., object]] = {
    "take_along_dim": take_along_dim,
    "kron": kron,
    "gradient": gradient,
    "cov": cov,
    "linspace": linspace,
    "chunk": chunk,
    "istft": istft,
    "corrcoef": corrcoef,
    "fill_diagonal_": fill_diagonal,
    "vander": vander,
    "combinations": combinations,
    "histogram": histogram,
}
# By function; a method is one, too.
_OWN: dict[Any, Callable[..., object]] = {
    getattr(place, name): own
    for name, own in _BY_NAME.items()
    for place in (torch, torch.Tensor)
    if hasattr(place, name)
} | {
    torch.linalg.lstsq: lstsq,
    torch.nn.functional.max_pool1d: max_pool1d,
    torch.nn.functional.embedding_bag: embedding_bag,
    torch.tril_indices: tril_indices,
    torch.triu_indices: triu_indices,
    torch.split: split,
    torch.functional.split: split,
    torch.Tensor.split: split_method,
}

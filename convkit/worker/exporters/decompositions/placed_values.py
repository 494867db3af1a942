"""Values that are put into a tensor: by a mask, into a diagonal, by a flat index, combined with
those of the same index, or in place of rows that are too long.
"""

import torch


def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`x.masked_scatter(mask, source)`: the source's elements in order, where the mask is true."""
    x, mask = torch.broadcast_tensors(x, mask)
    numbers = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp_min(0)
    placed = source.reshape(-1).index_select(0, numbers).reshape(x.shape)
    return torch.where(mask, placed, x)


def masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`x.masked_select(mask)`."""
    x, mask = torch.broadcast_tensors(x, mask)
    return x.reshape(-1).index_select(0, mask.reshape(-1).nonzero().squeeze(-1))


def padded_places(x: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """`torch.nonzero_static`: the places of the first elements that are not 0, and what fills the
    rest.
    """
    filled = torch.full((size, x.ndim), fill_value, dtype=torch.int64)
    return torch.cat([x.nonzero(), filled])[:size]


def diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """`x.diagonal_scatter`: a source in place of a diagonal."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    is_diagonal = torch.arange(rows).unsqueeze(-1) + offset == torch.arange(columns)
    # Numbers of the source by rows, or by columns for a diagonal below the first row.
    numbers = torch.arange(columns if offset < 0 else rows)
    numbers = torch.minimum(numbers, torch.scalar_tensor(source.shape[-1] - 1, dtype=torch.int64))
    along = source.index_select(-1, numbers).unsqueeze(-2 if offset < 0 else -1)
    return torch.where(is_diagonal, along, moved).movedim((-2, -1), (dim1, dim2))


def put(
    x: torch.Tensor,
    index: torch.Tensor,
    source: torch.Tensor,
    accumulate: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`x.put(index, source)`."""
    flat, numbers, values = x.reshape(-1), index.reshape(-1), source.reshape(-1)
    numbers = torch.where(numbers < 0, numbers + flat.shape[0], numbers)
    found = (flat.scatter_add if accumulate else flat.scatter)(0, numbers, values)
    return found.reshape(x.shape)


def scattered_mean(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,  # noqa: ARG001
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """`x.scatter_reduce(dim, index, src, "mean")`, which is translated as an assignment."""
    once = torch.ones_like(src)
    counts = torch.zeros_like(x).scatter_add(dim, index, once)
    if include_self:
        counts, total = counts + 1, x.scatter_add(dim, index, src)
    else:
        total = torch.where(counts > 0, 0, x).scatter_add(dim, index, src)
        counts = counts.clamp_min(1)
    return (
        total / counts if x.is_floating_point() else torch.div(total, counts, rounding_mode="floor")
    )


def index_reduced(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """`x.index_reduce`: rows of a source combined with those of an index."""
    along = index.reshape(-1, *[1] * (x.ndim - 1 - dim % max(x.ndim, 1))).expand(source.shape)
    if reduce == "mean":
        return scattered_mean(x, dim, along, source, reduce, include_self=include_self)
    return x.scatter_reduce(dim, along, source, reduce, include_self=include_self)


def scattered(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | float, *, reduce: str
) -> torch.Tensor:
    """`x.scatter` that adds or multiplies."""
    if not isinstance(source, torch.Tensor):
        source = torch.full_like(index, source, dtype=x.dtype)
    return x.scatter_reduce(dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


def is_mean(
    x: torch.Tensor,  # noqa: ARG001
    dim: int,  # noqa: ARG001
    index: torch.Tensor,  # noqa: ARG001
    src: torch.Tensor,  # noqa: ARG001
    reduce: str,
    **_: object,
) -> bool:
    """Say whether a `scatter_reduce` is a mean."""
    return reduce == "mean"


def renormalized(
    weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    """Rows of a table, made shorter where an index reads them and they are longer than `max_norm`:
    what `F.embedding(max_norm=...)` writes into its table.
    """
    places = indices.reshape(-1)
    rows = weight.index_select(0, places)
    lengths = torch.linalg.vector_norm(rows, norm_type, -1, keepdim=True)
    # As torch's kernel (Embedding.cpp, `embedding_renorm_cpu_`).
    shorter = rows * (max_norm / (lengths + 1e-7))
    return weight.index_put([places], torch.where(lengths > max_norm, shorter, rows))

"""Scatters: coremltools 9.0 has no `scatter_reduce`, refuses axes that vary, and fills with a value
for shapes that are fixed only. Writes to parts of a tensor are scatters, too, where it refuses
their indices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from convkit.runtimes.coreml.conversion.frontend_arguments import Translation, arguments, value

# torch's names of reductions, and ML programs' modes.
_MODES = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def scatter_translations() -> dict[str, Translation]:
    """Return the translations by operator."""
    return {
        "scatter": scatter,
        "scatter.src": scatter,
        "scatter.value": scatter,
        "scatter.reduce": scatter,
        "scatter.value_reduce": scatter,
        "scatter_add": scatter_add,
        "scatter_reduce": scatter_reduce,
        "scatter_reduce.two": scatter_reduce,
    }


def scatter(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """`scatter` of a tensor or a number, by default in place of what was there."""
    source = "value" if "value" in node.kind else "src"
    data, axis, indices, updates, reduce = arguments(
        context, node, ("self", "dim", "index", source, "reduce")
    )
    mode = "update" if value(reduce) is None else _MODES[str(value(reduce))]
    _Scatter(data, axis, indices).write(context, node, updates, mode)


def scatter_add(context: Any, node: Any) -> None:  # noqa: ANN401
    """`scatter_add`."""
    data, axis, indices, updates = arguments(context, node, ("self", "dim", "index", "src"))
    _Scatter(data, axis, indices).write(context, node, updates, "add")


def scatter_reduce(context: Any, node: Any) -> None:  # noqa: ANN401
    """`scatter_reduce`, with or without what was there."""
    from coremltools.converters.mil.mil import Builder, types

    names = ("self", "dim", "index", "src", "reduce", "include_self")
    data, axis, indices, updates, reduce, include = arguments(context, node, names)
    how = str(value(reduce))
    place = _Scatter(data, axis, indices)
    number = types.nptype_from_builtin(data.dtype)
    includes = include is None or bool(value(include))
    if not includes:
        place.data = place.scattered(_least(how, number), "update")
    if how != "mean":
        place.write(context, node, updates, _MODES[how])
        return
    total = place.scattered(updates, "add")
    counts = _Scatter(Builder.mul(x=data, y=number(0)), axis, indices).scattered(number(1), "add")
    if includes:
        counts = Builder.add(x=counts, y=number(1))
    counts = Builder.maximum(x=counts, y=number(1))
    divide = Builder.real_div if types.is_float(data.dtype) else Builder.floor_div
    context.add(divide(x=total, y=counts, name=node.name))


def _least(how: str, number: Any) -> Any:  # noqa: ANN401
    """Return what changes no result of a reduction."""
    if how in ("amax", "amin"):
        kind = np.dtype(number)
        limits = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
        return number(limits.min if how == "amax" else limits.max)
    return number(1 if how == "prod" else 0)


class _Scatter:
    """Where elements go: `indices` along an axis of `data`."""

    def __init__(self, data: Any, axis: Any, indices: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.mil import Builder, types

        self.data, self.axis = data, int(value(axis))
        self.indices = indices
        if not types.is_int(indices.dtype) or types.builtin_to_string(indices.dtype) != "int32":
            self.indices = Builder.cast(x=indices, dtype="int32")

    def scattered(self, updates: Any, mode: str, **name: str) -> Any:  # noqa: ANN401
        """Return the data with a tensor or a number scattered."""
        from coremltools.converters.mil.mil import Builder, types

        data = self.data
        is_bool = types.is_bool(data.dtype)
        kind = "int32" if is_bool else types.builtin_to_string(data.dtype)
        if is_bool:
            data = Builder.cast(x=data, dtype="int32")
        number = value(updates)
        if number is not None and np.ndim(number) == 0:
            typed = np.dtype({"fp32": "float32", "fp16": "float16"}.get(kind, kind)).type(number)
            updates = Builder.fill(shape=Builder.shape(x=self.indices), value=typed)
        elif types.builtin_to_string(updates.dtype) != kind:
            updates = Builder.cast(x=updates, dtype=kind)
        if _is_larger(updates.shape, self.indices.shape):
            updates = Builder.slice_by_size(
                x=updates, begin=[0] * updates.rank, size=Builder.shape(x=self.indices)
            )
        given = {"data": data, "indices": self.indices, "updates": updates}
        options = {"axis": self.axis, "mode": mode}
        if not is_bool:
            return Builder.scatter_along_axis(**given, **options, **name)
        whole = Builder.scatter_along_axis(**given, **options)
        return Builder.cast(x=whole, dtype="bool", **name)

    def write(self, context: Any, node: Any, updates: Any, mode: str) -> None:  # noqa: ANN401
        context.add(self.scattered(updates, mode, name=node.name))


def _is_larger(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Say whether a shape is known to exceed another: torch reads as much as there are indices."""
    from coremltools.converters.mil.mil.types.symbolic import is_symbolic

    return any(
        not is_symbolic(mine) and not is_symbolic(its) and mine > its
        for mine, its in zip(one, other, strict=True)
    )


def placing_decompositions() -> dict[Any, Callable[..., object]]:
    """Return writes to parts of a tensor, by operator, as scatters."""
    aten = torch.ops.aten
    return {
        aten.index_add.default: _index_add,
        aten.index_copy.default: _index_copy,
        aten.index_fill.int_Scalar: _index_fill,
        aten.index_fill.int_Tensor: _index_fill,
        aten.index_reduce.default: _index_reduce,
        aten.index_put.default: _index_put,
    }


def _places(index: torch.Tensor, dim: int, like: torch.Tensor) -> torch.Tensor:
    """Return an index along one axis for each element of a tensor."""
    shape = [1] * like.ndim
    shape[dim % like.ndim] = -1
    return index.reshape(shape).expand(like.shape)


def _index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    scaled = source if alpha == 1 else source * alpha
    return x.scatter_add(dim, _places(index, dim, source), scaled)


def _index_copy(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    return x.scatter(dim, _places(index, dim, source), source)


def _index_fill(
    x: torch.Tensor, dim: int, index: torch.Tensor, value: float | torch.Tensor
) -> torch.Tensor:
    rows = x.index_select(dim, index)
    filled = torch.zeros_like(rows) + value
    return x.scatter(dim, _places(index, dim, rows), filled.to(x.dtype))


def _index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    places = _places(index, dim, source)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)


def _masked(
    x: torch.Tensor, axis: int, chosen: Sequence[torch.Tensor], values: torch.Tensor, *, adds: bool
) -> torch.Tensor:
    """`x[:, mask] = values`, whose mask begins at an axis, and whose values do not differ between
    the places that it chooses.
    """
    (mask, *others), behind = chosen, x.ndim - axis - chosen[0].ndim
    is_alike = values.ndim == 0 or (axis == 0 and values.ndim <= behind)
    if others or not is_alike:
        return NotImplemented
    where = mask.reshape([1] * axis + [*mask.shape] + [1] * behind)
    return torch.where(where, x + values if adds else values, x)


def _index_put(
    x: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`x[indices] = values` for indices that are numbers: the axes that they choose from become
    one. For a mask, if each place that it chooses gets the same.
    """
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    chosen = [each for each in indices if each is not None]
    if any(each.dtype == torch.bool for each in chosen):
        return _masked(x, axes[0], chosen, values, adds=accumulate)
    chosen = list(torch.broadcast_tensors(*chosen))
    count, rank = len(axes), chosen[0].ndim
    front = list(range(count))
    moved = x.movedim(axes, front)
    sizes, rest = moved.shape[:count], moved.shape[count:]
    place = torch.zeros_like(chosen[0])
    for each, size in zip(chosen, sizes, strict=True):
        place = place * size + torch.where(each < 0, each + size, each)
    # Indices side by side leave their axes where they are; others come first.
    start = axes[0] if axes == list(range(axes[0], axes[0] + count)) else 0
    wanted = (*rest[:start], *place.shape, *rest[start:])
    spread = values.expand(wanted).movedim(list(range(start, start + rank)), list(range(rank)))
    flat = moved.flatten(0, count - 1) if count > 1 else moved
    rows = spread.reshape(-1, *rest) if rank != 1 else spread
    where = _places(place.reshape(-1), 0, rows)
    written = flat.scatter_add(0, where, rows) if accumulate else flat.scatter(0, where, rows)
    whole = written.reshape(*sizes, *rest) if count > 1 else written
    return whole.movedim(front, axes)

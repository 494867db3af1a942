"""Slices, gathers, scatters, sorting.

A negative index counts from the end, as it did up to iOS 16 (undefined in later versions). An index
out of range is an error here, and undefined on devices.
"""

import torch

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

_MODES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def slice_by_index(call: OperationCall) -> torch.Tensor:
    """Slice as `x[begin:end:stride]`; masks omit a bound, or select one element and drop the
    axis.
    """
    x = call.tensor("x")
    for axis, places in enumerate(_sliced_places(call, x)):
        x = (
            x.index_select(axis, places)
            if isinstance(places, torch.Tensor)
            else _narrowed(x, axis, places)
        )
    dropped = [axis for axis, drop in enumerate(call.flags("squeeze_mask", x.dim())) if drop]
    for axis in reversed(dropped):
        x = x.squeeze(axis)
    return x


def slice_update(call: OperationCall) -> torch.Tensor:
    """Replace the slice that `slice_by_index` would return."""
    x, update = call.tensor("x").clone(), call.tensor("update")
    places = [
        _places(each, size) if isinstance(each, slice) else each
        for each, size in zip(_sliced_places(call, x), x.shape, strict=True)
    ]
    grid = torch.meshgrid(*places, indexing="ij")
    x[grid] = update.reshape(grid[0].shape).to(x.dtype)
    return x


def slice_by_size(call: OperationCall) -> torch.Tensor:
    """Slice `size` elements from `begin` along each axis; a size of -1 takes all the rest."""
    x = call.tensor("x")
    for axis, (begin, size) in enumerate(
        zip(call.integers("begin"), call.integers("size"), strict=True)
    ):
        start = begin + x.shape[axis] if begin < 0 else begin
        count = x.shape[axis] - start if size == -1 else size
        if start < 0 or start + count > x.shape[axis]:
            raise EvaluationError(
                f"{count} elements from {start} on are out of range for an axis of {x.shape[axis]}"
            )
        x = x.narrow(axis, start, count)
    return x


def gather(call: OperationCall) -> torch.Tensor:
    """Gather slices along `axis` at `indices`; the first `batch_dims` axes of both are shared."""
    x, indices, axis = call.tensor("x"), call.tensor("indices"), call.integer("axis")
    batch = call.integer("batch_dims") if "batch_dims" in call.arguments else 0
    axis, batch = axis % x.dim(), batch % max(indices.dim(), 1) if batch < 0 else batch
    places = checked(indices, x.shape[axis])
    if batch == 0:
        taken = x.index_select(axis, places.reshape(-1))
        return taken.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])
    lead = x.shape[:batch]
    flat = x.reshape(-1, *x.shape[batch:])
    rows = places.reshape(flat.shape[0], -1)
    inner = axis - batch
    taken = torch.stack(
        [each.index_select(inner, row) for each, row in zip(flat, rows, strict=True)]
    )
    return taken.reshape(
        [*lead, *x.shape[batch:axis], *indices.shape[batch:], *x.shape[axis + 1 :]]
    )


def gather_along_axis(call: OperationCall) -> torch.Tensor:
    """Gather elements along `axis`, each by the index at its position."""
    x, axis = call.tensor("x"), call.integer("axis")
    return torch.take_along_dim(x, checked(call.tensor("indices"), x.shape[axis]), axis)


def gather_nd(call: OperationCall) -> torch.Tensor:
    """Gather slices at coordinates given by the last axis of `indices`."""
    x, indices = call.tensor("x"), call.tensor("indices")
    batch = call.integer("batch_dims") if "batch_dims" in call.arguments else 0
    lead = x.shape[:batch]
    flat = x.reshape(-1, *x.shape[batch:])
    places = indices.reshape(flat.shape[0], *indices.shape[batch:])
    taken = torch.stack(
        [each[_coordinates(place, each)] for each, place in zip(flat, places, strict=True)]
    )
    return taken.reshape([*lead, *taken.shape[1:]])


def scatter(call: OperationCall) -> torch.Tensor:
    """Combine whole slices along `axis` with those of `updates`."""
    data, updates = call.tensor("data"), call.tensor("updates")
    axis = call.integer("axis") % data.dim()
    places = checked(call.tensor("indices"), data.shape[axis])
    shape = [-1 if each == axis else 1 for each in range(data.dim())]
    return _combined(
        data, axis, places.reshape(shape).expand(updates.shape), updates, call.text("mode")
    )


def scatter_along_axis(call: OperationCall) -> torch.Tensor:
    """Combine the elements along `axis` selected by `indices` with the elements of `updates` at the
    same position.
    """
    data = call.tensor("data")
    axis = call.integer("axis") % data.dim()
    places = checked(call.tensor("indices"), data.shape[axis])
    return _combined(data, axis, places, call.tensor("updates"), call.text("mode"))


def scatter_nd(call: OperationCall) -> torch.Tensor:
    """Combine slices at coordinates given by the last axis of `indices` with those of `updates`."""
    data, indices, updates = call.tensor("data"), call.tensor("indices"), call.tensor("updates")
    depth = indices.shape[-1]
    numbers = torch.arange(data.numel()).reshape(data.shape)
    places = numbers[_coordinates(indices, data)].reshape(-1)
    flat = _combined(data.reshape(-1), 0, places, updates.reshape(-1), call.text("mode"))
    return flat.reshape(data.shape) if depth else flat


def topk(call: OperationCall) -> list[torch.Tensor]:
    """Largest (or smallest) values along `axis` and their indices; ties are in order of
    occurrence.
    """
    x, axis, count = call.tensor("x"), call.integer("axis"), call.integer("k")
    values, places = torch.sort(x, dim=axis, descending=not call.flag("ascending"), stable=True)
    count = x.shape[axis] if count == -1 else count
    return [values.narrow(axis, 0, count), places.narrow(axis, 0, count)][: call.results]


def argsort(call: OperationCall) -> torch.Tensor:
    """Indices that sort `axis`; ties are in order of occurrence."""
    x, axis = call.tensor("x"), call.integer("axis")
    return torch.sort(x, dim=axis, descending=not call.flag("ascending"), stable=True).indices


def one_hot(call: OperationCall) -> torch.Tensor:
    """Set `on_value` at each index along a new axis, `off_value` elsewhere; an index out of range
    sets nothing.
    """
    indices, axis = call.tensor("indices"), call.integer("axis")
    axis %= indices.dim() + 1
    size = call.integer("one_hot_vector_size")
    shape = [-1 if each == axis else 1 for each in range(indices.dim() + 1)]
    hits = indices.unsqueeze(axis) == torch.arange(size).reshape(shape)
    return torch.where(hits, call.tensor("on_value"), call.tensor("off_value"))


def cumsum(call: OperationCall) -> torch.Tensor:
    """Cumulative sum along `axis`, from either end, including or excluding the element itself."""
    x, axis = call.tensor("x"), call.integer("axis")
    x = torch.flip(x, [axis]) if call.flag("reverse") else x
    sums = torch.cumsum(x, axis)
    if call.flag("exclusive") and x.shape[axis]:
        sums = torch.cat(
            [torch.zeros_like(sums.narrow(axis, 0, 1)), sums.narrow(axis, 0, x.shape[axis] - 1)],
            axis,
        )
    return torch.flip(sums, [axis]) if call.flag("reverse") else sums


def checked(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Return nonnegative indices; raises EvaluationError if any is out of range."""
    places = indices.long()
    places = torch.where(places < 0, places + size, places)
    if places.numel() and not bool(((places >= 0) & (places < size)).all()):
        low, high = int(indices.min()), int(indices.max())
        raise EvaluationError(
            f"indices from {low} to {high} are out of range for an axis of {size}"
        )
    return places


def _coordinates(indices: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(checked(indices[..., axis], x.shape[axis]) for axis in range(indices.shape[-1]))


def _combined(
    data: torch.Tensor, axis: int, places: torch.Tensor, updates: torch.Tensor, mode: str
) -> torch.Tensor:
    match mode:
        case "update":
            return data.scatter(axis, places, updates)
        case "add" | "mul" | "max" | "min":
            return data.scatter_reduce(axis, places, updates, _MODES[mode])
        case "sub":
            return data.scatter_reduce(axis, places, -updates, "sum")
        case "div":
            return data / torch.ones_like(data).scatter_reduce(axis, places, updates, "prod")
        case _:
            raise EvaluationError(f"unknown mode {mode}")


def _sliced_places(call: OperationCall, x: torch.Tensor) -> list["slice | torch.Tensor"]:
    """Return the selection along each axis: a slice for positive strides, indices for negative
    ones.
    """
    begins, ends, rank = call.integers("begin"), call.integers("end"), x.dim()
    strides = call.optional_integers("stride") or [1] * rank
    no_begin, no_end = call.flags("begin_mask", rank), call.flags("end_mask", rank)
    taken: list[slice | torch.Tensor] = []
    for axis, single in enumerate(call.flags("squeeze_mask", rank)):
        if single:
            place = int(
                checked(torch.tensor([0 if no_begin[axis] else begins[axis]]), x.shape[axis])
            )
            taken.append(slice(place, place + 1, 1))
            continue
        bounds = slice(
            None if no_begin[axis] else begins[axis],
            None if no_end[axis] else ends[axis],
            strides[axis],
        )
        if strides[axis] > 0:
            taken.append(bounds)
        else:
            taken.append(_places(bounds, x.shape[axis]))
    return taken


def _places(bounds: slice, size: int) -> torch.Tensor:
    return torch.tensor(
        range(*bounds.indices(size)), dtype=torch.long
    )  # torch.arange rejects an empty range


def _narrowed(x: torch.Tensor, axis: int, bounds: slice) -> torch.Tensor:
    return x[(slice(None),) * axis + (bounds,)]

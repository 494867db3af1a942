"""Tensors of more than five dimensions, which Core ML has not, as their elements in order.

A view to such a shape moves nothing, so the tensor before it stands for the one after it. What
permutes, picks or adds up elements then needs the axes before and behind only, merged.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from convkit.worker.exporters.decompositions.graph_rewriting import (
    GraphRewriting,
    UnrewrittenError,
    decomposed_where,
)

# Core ML's own limit.
MOST_DIMENSIONS = 5

Size = Any  # an int or a SymInt


@dataclasses.dataclass(frozen=True)
class Flat:
    """A tensor's elements, in a shape of at most five dimensions, and its own shape."""

    data: torch.Tensor
    shape: tuple[Size, ...]


pytree.register_pytree_node(
    Flat,
    lambda flat: ([flat.data, *flat.shape], None),
    lambda parts, _: Flat((given := list(parts))[0], tuple(given[1:])),
)


def has_high_ranks(program: torch.export.ExportedProgram) -> bool:
    """Say whether a program has such tensors."""
    return any(is_high(node) for node in program.graph.nodes)


def is_high(node: Node) -> bool:
    """Say whether a node's result, or one of its results, is such a tensor."""
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(each, torch.Tensor) and each.ndim > MOST_DIMENSIONS for each in values)


def without_high_ranks(
    program: torch.export.ExportedProgram, table: Mapping[Any, Callable[..., object]]
) -> torch.export.ExportedProgram:
    """Return a program without such tensors. Operators that `table` decomposes are decomposed where
    there is no rule for them. Raises UnrewrittenError.
    """
    program = decomposed_where(program, lambda node: _concerns(node) and _rule(node) is None, table)
    return _Flattening(program).program()


def _concerns(node: Node) -> bool:
    return node.op == "call_function" and (is_high(node) or any(map(is_high, node.all_input_nodes)))


class _Flattening(GraphRewriting):
    def is_strange(self, node: Node) -> bool:
        return is_high(node)

    def is_rewritten(self, node: Node) -> bool:
        return _concerns(node)

    def held(self, node: Node) -> Flat:
        shape = tuple(node.meta["val"].shape)
        return Flat(self.replaced(node, lambda held: held.detach().reshape(-1)), shape)

    def rewritten(self, node: Node) -> Any:  # noqa: ANN401 - a node, or a Flat of nodes
        rule = _rule(node)
        if rule is None:
            raise UnrewrittenError(node)
        return self.inlined(node, lambda *given, **named: _settled(rule(*given, **named)))


def _settled(found: Any) -> Any:  # noqa: ANN401 - a Flat, a tensor, or several
    """Return results with few dimensions as tensors."""
    if isinstance(found, list | tuple):
        return [_settled(each) for each in found]
    if isinstance(found, Flat) and len(found.shape) <= MOST_DIMENSIONS:
        return found.data.reshape(found.shape)
    return found


def _flat(given: Flat | torch.Tensor) -> Flat:
    return given if isinstance(given, Flat) else Flat(given, tuple(given.shape))


def _axis(flat: Flat, axis: int) -> int:
    return axis % len(flat.shape)


def _around(flat: Flat, first: int, last: int | None = None) -> torch.Tensor:
    """Return elements as (before, axes first to last, behind)."""
    last = first if last is None else last
    shape = flat.shape
    return flat.data.reshape(
        math.prod(shape[:first]), math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])
    )


def _along(flat: Flat, axis: int, run: Callable[[torch.Tensor], torch.Tensor]) -> Flat:
    """Run on (before, axis, behind), which may change the axis's size."""
    found = run(_around(flat, axis))
    return Flat(found, (*flat.shape[:axis], found.shape[1], *flat.shape[axis + 1 :]))


def _viewed(given: Flat | torch.Tensor, shape: Sequence[Size]) -> Flat:
    flat = _flat(given)
    sizes = list(shape)
    if -1 in [size for size in sizes if isinstance(size, int)]:
        place = sizes.index(-1)
        others = math.prod(size for n, size in enumerate(sizes) if n != place)
        sizes[place] = math.prod(flat.shape) // others
    return Flat(flat.data, tuple(sizes))


def permuted(given: Flat | torch.Tensor, order: Sequence[int]) -> Flat:
    """Permute axes: at once if those that stay side by side are few, else one group at a time."""
    flat = _flat(given)
    order = [_axis(flat, axis) for axis in order]
    shape = tuple(flat.shape[axis] for axis in order)
    groups = merged_axes(order)
    if len(groups) <= MOST_DIMENSIONS:
        places = sorted(groups)
        split = flat.data.reshape([_product(flat, group) for group in places])
        return Flat(split.permute([places.index(group) for group in groups]), shape)
    axes, data = list(range(len(order))), flat.data
    for first in range(len(order)):
        if (begin := axes.index(order[first])) == first:
            continue
        end = begin + 1
        while end < len(axes) and axes[end] == order[first + end - begin]:
            end += 1
        parts = (axes[:first], axes[first:begin], axes[begin:end], axes[end:])
        data = data.reshape([_product(flat, part) for part in parts]).transpose(1, 2)
        axes = [*parts[0], *parts[2], *parts[1], *parts[3]]
    return Flat(data, shape)


def merged_axes(permutation: Sequence[int]) -> list[tuple[int, ...]]:
    """Return a permutation's axes in its order, those together that stay side by side."""
    places = enumerate(permutation)
    return [
        tuple(axis for _, axis in group)
        for _, group in itertools.groupby(places, key=lambda pair: pair[1] - pair[0])
    ]


def _product(flat: Flat, axes: Sequence[int]) -> Size:
    return math.prod(flat.shape[axis] for axis in axes)


def _transposed(given: Flat, one: int, other: int) -> Flat:
    order = list(range(len(given.shape)))
    one, other = _axis(given, one), _axis(given, other)
    order[one], order[other] = order[other], order[one]
    return permuted(given, order)


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


def expanded(given: Flat | torch.Tensor, shape: Sequence[Size]) -> Flat:
    """Repeat axes of size 1, one after the other."""
    flat = _flat(given)
    added = len(shape) - len(flat.shape)
    flat = Flat(flat.data, (1,) * added + flat.shape)
    for axis, size in enumerate(shape):
        keeps = isinstance(size, int) and size in (-1, 1)
        if _is_one(flat.shape[axis]) and not keeps:
            data = _around(flat, axis)
            data = data.expand(data.shape[0], size, data.shape[2])
            flat = Flat(data, (*flat.shape[:axis], size, *flat.shape[axis + 1 :]))
    return flat


def _broadcast(target: Callable[..., Any]) -> Callable[..., Flat]:
    """Return an operation on elements, of any number of tensors."""

    def run(*args: Any, **kwargs: Any) -> Flat:  # noqa: ANN401
        tensors = [each for each in args if isinstance(each, Flat | torch.Tensor)]
        shapes = [_flat(each).shape for each in tensors]
        rank = max(map(len, shapes))
        shapes = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
        full = tuple(
            next((size for size in sizes if not _is_one(size)), 1)
            for sizes in zip(*shapes, strict=True)
        )
        # Axes side by side are one where the same tensors repeat them.
        repeats = [tuple(map(_is_one, sizes)) for sizes in zip(*shapes, strict=True)]
        runs = [
            list(group) for _, group in itertools.groupby(range(rank), key=lambda n: repeats[n])
        ]
        if len(runs) > MOST_DIMENSIONS:
            tensors = [expanded(each, full) for each in tensors]
            runs, shapes = [list(range(rank))], [full] * len(tensors)
        ready = iter(
            [
                _flat(each).data.reshape([math.prod(shape[n] for n in run) for run in runs])
                for each, shape in zip(tensors, shapes, strict=True)
            ]
        )
        merged = [next(ready) if isinstance(each, Flat | torch.Tensor) else each for each in args]
        return Flat(target(*merged, **kwargs), full)

    return run


def _reduced(target: Callable[..., Any]) -> Callable[..., Flat]:
    """Return a reduction, which runs of neighboring axes go through one after the other."""

    def run(flat: Flat, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Flat:  # noqa: ANN401, FBT001, FBT002 - torch's
        given = range(len(flat.shape)) if dim is None else [dim] if isinstance(dim, int) else dim
        axes = sorted(_axis(flat, axis) for axis in given or range(len(flat.shape)))
        for run_ in reversed(merged_axes(axes)):
            data = target(_around(flat, run_[0], run_[-1]), [1], **kwargs)
            kept = (1,) * len(run_) if keepdim else ()
            flat = Flat(data, (*flat.shape[: run_[0]], *kept, *flat.shape[run_[-1] + 1 :]))
        return flat

    return run


def _in_place(target: Callable[..., Any]) -> Callable[..., Flat]:
    """Return an operation along one axis: a softmax, a running sum, a slice, a choice."""

    def run(flat: Flat, dim: int, *args: Any, **kwargs: Any) -> Flat:  # noqa: ANN401
        return _along(flat, _axis(flat, dim), lambda data: target(data, 1, *args, **kwargs))

    return run


def _selected(flat: Flat, dim: int, index: Any) -> Flat:  # noqa: ANN401
    axis = _axis(flat, dim)
    return Flat(_around(flat, axis).select(1, index), (*flat.shape[:axis], *flat.shape[axis + 1 :]))


def _inserted(given: Flat | torch.Tensor, dim: int) -> Flat:
    flat = _flat(given)
    place = dim % (len(flat.shape) + 1)
    return Flat(flat.data, (*flat.shape[:place], 1, *flat.shape[place:]))


def _squeezed(flat: Flat, dims: Any = None) -> Flat:  # noqa: ANN401
    given = range(len(flat.shape)) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {_axis(flat, axis) for axis in given if _is_one(flat.shape[axis])}
    return Flat(flat.data, tuple(size for n, size in enumerate(flat.shape) if n not in gone))


def _joined(tensors: Sequence[Flat | torch.Tensor], dim: int = 0) -> Flat:
    flats = [_flat(each) for each in tensors]
    axis = _axis(flats[0], dim)
    data = torch.cat([_around(each, axis) for each in flats], 1)
    return Flat(data, (*flats[0].shape[:axis], data.shape[1], *flats[0].shape[axis + 1 :]))


def _stacked(tensors: Sequence[Flat | torch.Tensor], dim: int = 0) -> Flat:
    return _joined(
        [_inserted(each, dim) for each in tensors], dim % (len(_flat(tensors[0]).shape) + 1)
    )


def _parted(flat: Flat, sizes: Any, dim: int = 0) -> list[Flat]:  # noqa: ANN401
    axis = _axis(flat, dim)
    return [
        Flat(part, (*flat.shape[:axis], part.shape[1], *flat.shape[axis + 1 :]))
        for part in _around(flat, axis).split(sizes, 1)
    ]


def _unbound(flat: Flat, dim: int = 0) -> list[Flat]:
    return [_selected(flat, dim, n) for n in range(flat.shape[_axis(flat, dim)])]


def _multiplied(one: Flat | torch.Tensor, other: Flat | torch.Tensor) -> Flat:
    """Matrix products, of which the axes before the matrices are merged."""
    one, other = _flat(one), _flat(other)
    rows, columns = one.shape[-2], other.shape[-1]
    leading = max(one.shape[:-2], other.shape[:-2], key=len)
    both = [expanded(each, (*leading, *each.shape[-2:])) for each in (one, other)]
    merged = [each.data.reshape(math.prod(each.shape[:-2]), *each.shape[-2:]) for each in both]
    return Flat(torch.bmm(*merged), (*leading, rows, columns))


def _projected(flat: Flat, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Flat:
    rows = flat.data.reshape(math.prod(flat.shape[:-1]), flat.shape[-1])
    found = torch.ops.aten.linear(rows, weight, bias)
    return Flat(found, (*flat.shape[:-1], weight.shape[0]))


def _normalized(flat: Flat, sizes: Sequence[int], *args: Any) -> Flat:  # noqa: ANN401
    rows = flat.data.reshape(math.prod(flat.shape[: -len(sizes)]), *sizes)
    return Flat(torch.ops.aten.layer_norm(rows, sizes, *args), flat.shape)


_ELEMENTWISE = frozenset(
    (
        *("add", "sub", "rsub", "mul", "div", "pow", "neg", "abs", "sqrt", "rsqrt", "reciprocal"),
        *("exp", "log", "sin", "cos", "tanh", "sigmoid", "relu", "gelu", "silu", "leaky_relu"),
        *("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "where", "masked_fill", "sign"),
        *("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"),
        *("bitwise_and", "bitwise_or", "bitwise_not", "remainder", "floor", "ceil", "round"),
        *("floor_divide", "erf", "square", "hardswish", "hardsigmoid", "softplus", "elu", "mish"),
        *("clone", "contiguous", "alias", "detach", "_to_copy", "to", "zeros_like", "ones_like"),
    )
)
_REDUCTIONS = frozenset(("sum", "mean", "amax", "amin", "any", "all"))
_IN_PLACE = frozenset(
    ("softmax", "log_softmax", "_softmax", "_log_softmax", "cumsum", "slice", "index_select")
)
_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view"), _viewed),
    "permute": permuted,
    "transpose": _transposed,
    "expand": lambda given, shape, **_: expanded(given, shape),
    "unsqueeze": _inserted,
    "squeeze": _squeezed,
    "select": _selected,
    "cat": _joined,
    "stack": _stacked,
    "split": _parted,
    "split_with_sizes": _parted,
    "unbind": _unbound,
    "matmul": _multiplied,
    "linear": _projected,
    "layer_norm": _normalized,
}


def _rule(node: Node) -> Callable[..., Any] | None:
    """Return what an operation is on elements; None if it is unknown."""
    target = node.target
    if getattr(target, "__name__", "") == "getitem":
        return lambda several, index: several[index]
    if not isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - no public name
        return None
    name = target._schema.name.removeprefix("aten::")  # noqa: SLF001 - no public name
    if name == "sym_size":
        return lambda flat, axis: flat.shape[axis]
    if name in _RULES:
        return _RULES[name]
    kinds = ((_ELEMENTWISE, _broadcast), (_REDUCTIONS, _reduced), (_IN_PLACE, _in_place))
    return next((make(target) for names, make in kinds if name in names), None)

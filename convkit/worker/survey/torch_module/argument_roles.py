"""Finds out by calling a module what becomes of each argument: a mask of attention, a condition,
the lengths of a packed sequence. Calls that fail reveal what was reached before.
"""

import contextlib
import dataclasses
import inspect
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from convkit.worker.original.probing.torch_comparisons import COMPARING, KEEPING

# padding: one position for each key · mask: of positions or of pairs, for attention or for a
# selection · lengths: how much of a sequence counts · offsets: at which of another argument's
# elements each row begins · rows: put one after another where another
# argument, an array of ids, has a certain value.
RoleName = Literal["padding", "mask", "lengths", "offsets", "rows"]


@dataclasses.dataclass(frozen=True)
class Role:
    """What becomes of an argument. `width` is that of rows if they are put as they are; `ids` is
    the argument that says where, by its elements that are `value`, or whose elements offsets are
    among. `from_each`: how many rows are
    computed from each entry of the argument, such as the patches of an image; None if its own rows
    are put.
    """

    name: RoleName
    width: int | None = None
    ids: str = ""
    value: int = 0
    from_each: int | None = None


_INDEXING = frozenset(
    ("embedding", "embedding_bag", "index_select", "gather", "take", "take_along_dim", "one_hot")
)
# In place of an argument's name: 0, 1, 2, ...
_POSITIONS = ""
_Source = tuple[str, int | None]
_EQUALITIES = frozenset(("eq", "ne", "__eq__", "__ne__", "not_equal", "isin"))
# What a comparison by order adds to its number: the least value on the upper side.
_ORDERS = {"gt": 1, "greater": 1, "le": 1, "less_equal": 1}
_ORDERS |= {"ge": 0, "greater_equal": 0, "lt": 0, "less": 0}
# Functions that may compare with zero, by their type: `ids.bool()`.
_CASTS = frozenset(("bool", "to", "type"))
# Numbers that are compared with at once, as those of a table of special tokens.
_MOST_COMPARED = 16
# Functions whose result has one truth value for each element of their first argument.
_TRUTH = frozenset(
    (*COMPARING, "__invert__", "logical_not", "bitwise_not", "bool", "__and__", "__or__")
)
# The arguments of functions that take masks: their places, and their names.
_FUNCTIONS: dict[str, tuple[int, str, RoleName]] = {
    "scaled_dot_product_attention": (3, "attn_mask", "mask"),
    "masked_fill": (1, "mask", "mask"),
    "masked_fill_": (1, "mask", "mask"),
    "where": (0, "condition", "mask"),
    "_pack_padded_sequence": (1, "lengths", "lengths"),
}
# The place of offsets, both of torch's function and of that of torch.nn.functional, whose first two
# arguments are in different orders.
_BAG_OFFSETS = 2
# Functions that put rows, and the places of where and of what.
_PUTTING: dict[str, tuple[int, int]] = {
    "masked_scatter": (1, 2),
    "masked_scatter_": (1, 2),
    "__setitem__": (1, 2),
    "index_put": (1, 2),
    "index_put_": (1, 2),
}
# The names of arguments of torch's own layers that are masks.
_MASKS = ("attn_mask", "mask", "src_mask", "tgt_mask", "memory_mask")


def _rows_from_each(shape: torch.Size, put: object) -> int | None:
    """Return how many rows that are put come from each entry of an argument of some shape; None if
    they are its own.
    """
    if not isinstance(put, torch.Tensor) or not put.dim() or not shape or not put.numel():
        return None
    rows = put.numel() // put.shape[-1]
    if rows == math.prod(shape[:-1]) or rows % shape[0]:
        return None
    return rows // shape[0]


class _Following(TorchFunctionMode):
    """Follows arguments, whatever their layout or type, to those of functions that take masks."""

    def __init__(self, arguments: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.roles: dict[str, Role] = {}
        self.compared: dict[str, dict[int, None]] = {}
        self.bounds: dict[str, dict[int, None]] = {}
        self.indices: set[str] = set()
        self._origins: dict[int, str] = {}
        # Of what is computed from them, too: with a number if they are compared with it.
        self._sources: dict[int, frozenset[_Source]] = {}
        self._shapes = {name: tensor.shape for name, tensor in arguments.items()}
        for name, tensor in arguments.items():
            self._follow(tensor, name)
            self._derive(tensor, frozenset({(name, None)}))

    def reached(self, tensor: object, role: RoleName) -> None:
        """Note that a tensor is used as what has this role."""
        origin = self._origins.get(id(tensor))
        if origin:
            self.roles.setdefault(origin, Role(role))

    def _put(self, into: object, where: object, what: object) -> None:
        """Note what is put into the places that ids have a certain value in."""
        places = [(name, number) for name, number in self._of(where) if number is not None]
        rows = {name for name, _ in self._of(what)} - {name for name, _ in places}
        if len(places) == 1 and len(rows) == 1 and isinstance(into, torch.Tensor):
            (origin,) = rows
            is_direct = self._origins.get(id(what)) == origin
            width = into.shape[-1] if is_direct and into.dim() else None
            computed = _rows_from_each(self._shapes[origin], what)
            self.roles.setdefault(origin, Role("rows", width, *places[0], computed))

    def _bag(self, args: Sequence[Any], given: Mapping[str, Any]) -> None:
        """Note the offsets of bags, and the argument that has their elements."""
        offsets = args[_BAG_OFFSETS] if len(args) > _BAG_OFFSETS else given.get("offsets")
        origin = self._origins.get(id(offsets))
        elements = [self._origins.get(id(each)) for each in (*args[:2], given.get("input"))]
        for each in filter(None, elements):
            if origin and each != origin:
                self.roles.setdefault(origin, Role("offsets", ids=each))

    def _of(self, given: object) -> frozenset[_Source]:
        """Return the arguments that a value is computed from."""
        if isinstance(given, list | tuple):
            return frozenset().union(*map(self._of, given))
        return self._sources.get(id(given), frozenset())

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        name, given = getattr(func, "__name__", ""), dict(kwargs or {})
        if name in _FUNCTIONS:
            place, keyword, role = _FUNCTIONS[name]
            self.reached(args[place] if len(args) > place else given.get(keyword), role)
        if name in _PUTTING and len(args) > max(_PUTTING[name]):
            where, what = _PUTTING[name]
            self._put(args[0], args[where], args[what])
        if name == "embedding_bag":
            self._bag(args, given)
        if name in COMPARING and len(args) > 1:
            for one, other in (args[:2], args[1::-1]):
                if self._origins.get(id(one)) == _POSITIONS:
                    self.reached(other, "lengths")
        if name in _INDEXING:
            for each in (*args, *given.values()):
                self._index(each)
        result = func(*args, **given)
        sources = self._of([*args, *given.values()])
        if name in _EQUALITIES and len(args) > 1:
            sources |= {*self._compared(args[0], args[1]), *self._compared(args[1], args[0])}
        if name.strip("_") in _ORDERS and len(args) > 1:
            self._bounded(args[0], args[1], _ORDERS[name.strip("_")])
        if name in _CASTS and isinstance(result, torch.Tensor) and result.dtype == torch.bool:
            sources |= {*self._compared(args[0], 0)}
        self._derive(result, sources)
        if name == "arange":
            self._follow(result, _POSITIONS)
        origin = self._origins.get(id(args[0])) if args else None
        if origin is not None and (name in KEEPING or name in _TRUTH):
            self._follow(result, origin)
        return result

    def _index(self, given: object) -> None:
        """Note arguments that are indices, or among them."""
        for each in given if isinstance(given, list | tuple) else [given]:
            if isinstance(each, torch.Tensor) and not each.is_floating_point():
                self.indices.update(name for name, _ in self._of(each))

    def _compared(self, tensor: object, other: object) -> Iterator[_Source]:
        """Note and yield the whole numbers that an argument is compared with."""
        origin = self._origins.get(id(tensor))
        if not origin or not isinstance(tensor, torch.Tensor) or tensor.is_floating_point():
            return
        if isinstance(other, torch.Tensor):
            numbers = other.flatten().tolist() if other.numel() <= _MOST_COMPARED else []
            numbers = numbers if not self._of(other) else []
        else:
            numbers = [other]
        for number in numbers:
            if isinstance(number, int) and not isinstance(number, bool):
                self.compared.setdefault(origin, {})[number] = None
                yield origin, number

    def _bounded(self, tensor: object, number: object, more: int) -> None:
        """Note the least of the upper values if whole numbers are compared by order."""
        origin = self._origins.get(id(tensor))
        if not origin or not isinstance(tensor, torch.Tensor) or tensor.is_floating_point():
            return
        if isinstance(number, int) and not isinstance(number, bool):
            self.bounds.setdefault(origin, {})[number + more] = None

    def _derive(self, result: object, sources: frozenset[_Source]) -> None:
        for each in result if isinstance(result, list | tuple) else [result]:
            if sources and isinstance(each, torch.Tensor):
                self._sources[id(each)] = sources
                weakref.finalize(each, self._sources.pop, id(each), None)

    def _follow(self, tensor: object, origin: str) -> None:
        if isinstance(tensor, torch.Tensor) and id(tensor) not in self._origins:
            self._origins[id(tensor)] = origin
            weakref.finalize(tensor, self._origins.pop, id(tensor), None)


@dataclasses.dataclass(frozen=True)
class Uses:
    """What a call shows of arguments: their roles, the whole numbers that they are compared with,
    which of them are indices, and the least of the upper values where they are compared by order.
    """

    roles: Mapping[str, Role]
    compared: Mapping[str, tuple[int, ...]]
    indices: frozenset[str]
    bounds: Mapping[str, tuple[int, ...]]


def argument_uses(
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    arguments: Callable[[Mapping[str, torch.Tensor]], Mapping[str, Any]] = dict,
) -> Uses:
    """Call a module; return what is seen of its inputs, also if the call fails. `arguments` are
    forward's, of the inputs' tensors.
    """
    following = _Following(tensors)
    with (
        _watching_layers(module, following),
        torch.no_grad(),
        following,
        contextlib.suppress(Exception),
    ):
        module(**arguments(tensors))
    compared = {name: tuple(numbers) for name, numbers in following.compared.items()}
    bounds = {name: tuple(numbers) for name, numbers in following.bounds.items()}
    return Uses(following.roles, compared, frozenset(following.indices), bounds)


@contextlib.contextmanager
def _watching_layers(module: torch.nn.Module, following: _Following) -> Iterator[None]:
    """Note the masks that torch's own layers are called with: their inner ways differ."""

    def watch(layer: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        with contextlib.suppress(TypeError):
            bound = inspect.signature(layer.forward).bind_partial(*args, **kwargs).arguments
            for name, value in bound.items():
                if name.endswith("key_padding_mask"):
                    following.reached(value, "padding")
                elif name in _MASKS:
                    following.reached(value, "mask")

    hooks = [
        layer.register_forward_pre_hook(watch, with_kwargs=True)
        for layer in module.modules()
        if type(layer).__module__.startswith("torch.nn.")
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

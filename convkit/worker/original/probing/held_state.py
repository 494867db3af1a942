"""What a model holds at one moment besides weights, wherever its author keeps it: attributes of
modules and classes, variables of its files, closures, defaults of arguments, caches, context
variables, counts and iterators.

Each is a place whose value can be put back: a slot that is assigned (an attribute, a variable, the
cell of a closure), or the contents of a list, a dictionary or an array, which others may hold, too.
A copy takes the place of a count or an iterator; what has none is for `later_calls`.
"""

import argparse
import collections
import contextvars
import dataclasses
import functools
import inspect
import random
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from convkit.worker.original.probing.kept_iterators import ITERATORS, copied, position
from convkit.worker.process.user_modules import is_tool_path

# Of torch's own: what a module holds beside its author's attributes.
_OF_TORCH = frozenset(vars(torch.nn.Module())) | {"_is_full_backward_hook"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# Buffers larger than this are not copied, so what changes them is left to a second run.
_MOST_BYTES = 1 << 26
# Of weights, only small ones are copied: hardly any model writes to them. A vocabulary is larger,
# and holds nothing that changes; what it contains is not looked at.
_MOST_WEIGHTS, _MOST_ITEMS, _MOST_PLACES = 4096, 1000, 20_000
_SEQUENCES = (list, collections.deque, bytearray)
_CONTENTS = (*_SEQUENCES, dict, set, np.ndarray, contextvars.ContextVar)
_PLAIN = (bool, int, float, str, bytes, type(None))
_WITHOUT_COPIES = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_Cache = type(functools.cache(len))
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace, threading.local)
_WRAPPING = (staticmethod, classmethod, property, functools.cached_property)


@dataclasses.dataclass(frozen=True)
class Kept:
    """A place that holds state: an attribute of a module, as `path.name`, one of an object or class
    that it refers to, a variable, or the contents of what one of them is (`of_contents`).

    Which object holds it decides, not what it is equal to: an author's own need not have a hash.
    `file` is the module in which its code is looked for.
    """

    holder: Any = dataclasses.field(compare=False)
    path: str
    name: str
    file: str = dataclasses.field(compare=False, default="")
    of_contents: bool = False
    identity: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Note which object the holder is."""
        object.__setattr__(self, "identity", id(self.holder))

    def value(self) -> Any:  # noqa: ANN401 - whatever a model holds
        """Return what the place holds now; raises AttributeError or ValueError for nothing."""
        if self.of_contents:
            return self.holder
        if isinstance(self.holder, types.CellType):
            return self.holder.cell_contents
        return getattr(self.holder, self.name)

    def put(self, value: Any) -> None:  # noqa: ANN401 - as above
        """Make the place hold a value."""
        if self.of_contents:
            _fill(self.holder, value)
        elif isinstance(self.holder, types.CellType):
            self.holder.cell_contents = value
        else:
            setattr(self.holder, self.name, value)

    def clear(self) -> None:
        """Make the place hold nothing."""
        if isinstance(self.holder, types.CellType):
            del self.holder.cell_contents
        elif hasattr(self.holder, self.name):
            delattr(self.holder, self.name)


class State:
    """What the modules of a model, and its author's code, hold at one moment, besides weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._values: dict[Kept, Any] = {}
        self._versions: dict[Kept, tuple[int, int]] = {}
        for kept, value in _Walk(model).places():
            self._values[kept] = _copied(value) if kept.of_contents else value
            if isinstance(value, torch.Tensor):
                self._versions[kept] = _version(value)
                if _is_copied(value):
                    self._values[kept] = value.clone()
            elif isinstance(value, ITERATORS):
                self._values[kept] = copied(value)

    def changed(self) -> list[Kept]:
        """Return the places that do not hold what they held."""
        found = []
        now = dict(_Walk(self._model).places())
        for kept in {**self._values, **now}:
            if kept not in self._values:
                # The contents of a new object are as new as the place that holds it.
                found += [] if kept.of_contents else [kept]
                continue
            try:
                value = now[kept] if kept in now else kept.value()
            except (AttributeError, ValueError):
                found.append(kept)
                continue
            if isinstance(value, torch.Tensor):
                same = self._versions.get(kept) == _version(value)
            elif kept.of_contents:
                same = _alike(self._values[kept], value)
            else:
                same = _same(self._values[kept], value)
            if not same:
                found.append(kept)
        return found

    def restore(self, places: Sequence[Kept]) -> None:
        """Give places the values that they had."""
        for kept in places:
            if kept not in self._values:
                kept.clear()
                continue
            value = self._values[kept]
            if isinstance(value, torch.Tensor):
                value = self._written_back(kept, value)
            kept.put(copied(value) if isinstance(value, ITERATORS) else value)
            if isinstance(value, torch.Tensor):
                self._versions[kept] = _version(value)

    def _written_back(self, kept: Kept, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor with a former value: the same one that it was, if others may hold it."""
        try:
            now = kept.value()
        except (AttributeError, ValueError):
            now = None
        if isinstance(now, torch.Tensor) and id(now) == self._versions[kept][0]:
            try:
                with torch.no_grad():
                    return now.copy_(value)
            except RuntimeError:  # of inference mode, or another size
                return value.clone()
        return value.clone()


def held_places(model: torch.nn.Module) -> Iterator[tuple[Kept, Any]]:
    """Yield each place in which a model's author may keep state, with what it holds."""
    return _Walk(model).places()


class _At(NamedTuple):
    """Where something was reached: below which module, under which name, in whose file."""

    path: str
    name: str
    file: str

    def called(self, name: str) -> "_At":
        return self._replace(name=name)

    def place(self, holder: object, *, of_contents: bool = False) -> Kept:
        return Kept(holder, *self, of_contents)


class _Walk:
    """Goes through all that a model's author may keep state in, each object once."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._seen: set[int] = set()
        self._waiting: collections.deque[tuple[Any, _At]] = collections.deque()

    def places(self) -> Iterator[tuple[Kept, Any]]:
        """Yield each place with what it holds."""
        for path, module in self._model.named_modules():
            self._seen.add(id(module))
            yield from self._of_module(module, path)
        while self._waiting and len(self._seen) < _MOST_PLACES:
            yield from self._inside(*self._waiting.popleft())

    def _of_module(self, module: torch.nn.Module, path: str) -> Iterator[tuple[Kept, Any]]:
        own = _is_own(type(module))
        here = _At(path, "", type(module).__module__)
        for name, value in list(vars(module).items()):
            if name in _HOOKS:
                self._reach(tuple(value.values()), here.called(name))
            if name not in _OF_TORCH and (own or _is_plain(name, value)):
                yield here.called(name).place(module), value
                if own:
                    self._reach(value, here.called(name))
        for name, buffer in module.named_buffers(recurse=False):
            yield here.called(name).place(module), buffer
        if own:
            for name, weight in module.named_parameters(recurse=False):
                if weight.numel() <= _MOST_WEIGHTS:
                    yield here.called(name).place(module), weight
            self._reach(sys.modules[here.file], _At("", "", here.file))

    def _reach(self, value: object, at: _At) -> None:
        # A tensor is compared and copied where it is held.
        left_out = (*_PLAIN, torch.nn.Module, torch.Tensor)
        if not isinstance(value, left_out) and id(value) not in self._seen:
            self._seen.add(id(value))
            self._waiting.append((value, at))

    def _inside(self, value: Any, at: _At) -> Iterator[tuple[Kept, Any]]:  # noqa: ANN401 - whatever is reached
        for each in _parts(value):
            if isinstance(each, torch.Tensor) and each.numel() <= _MOST_WEIGHTS:
                yield at.place(each, of_contents=True), each
            self._reach(each, at)
        if isinstance(value, _CONTENTS):
            yield at.place(value, of_contents=True), value
        elif isinstance(value, _Cache):
            if _is_own_function(value.__wrapped__):
                yield at.place(value, of_contents=True), value
        elif isinstance(value, types.FunctionType):
            if _is_own_function(value):
                yield from self._of_function(value, at)
        elif isinstance(value, types.ModuleType):
            if _is_own_file(getattr(value, "__file__", None)):
                yield from self._variables(value, _At("", "", value.__name__))
        elif isinstance(value, type):
            if _is_own(value):
                yield from self._variables(value, _At(at.path, "", value.__module__))
        elif _is_own(type(value)) or isinstance(value, _NAMESPACES):
            for name, each in _attributes(value):
                yield at.called(name).place(value), each
                self._reach(each, at.called(name))

    def _variables(self, owner: type | types.ModuleType, at: _At) -> Iterator[tuple[Kept, Any]]:
        """Yield the variables of a file or a class, and reach what they are."""
        for name, value in list(vars(owner).items()):
            if name.startswith("__") and not inspect.isfunction(value):
                continue
            if _is_variable(value):
                yield at.called(name).place(owner), value
            self._reach(value, at.called(name))

    def _of_function(self, function: types.FunctionType, at: _At) -> Iterator[tuple[Kept, Any]]:
        """Yield what a function has as attributes, or sees of the one that made it, and reach those
        and its defaults.
        """
        for name, value in list(vars(function).items()):
            yield at.called(name).place(function), value
            self._reach(value, at.called(name))
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            if _is_variable(held):
                yield at.called(name).place(cell), held
            self._reach(held, at.called(name))
        defaults = function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        given = {**dict(zip(names, defaults, strict=True)), **(function.__kwdefaults__ or {})}
        for name, value in given.items():
            self._reach(value, at.called(name))


def _parts(value: Any) -> Iterable[object]:  # noqa: ANN401 - whatever is reached
    """Return what a container has as items, and what a wrapper of functions wraps."""
    if isinstance(value, (list, tuple, set, dict, collections.deque)):
        items = value.values() if isinstance(value, dict) else value
        return list(items) if len(value) <= _MOST_ITEMS else ()
    if isinstance(value, types.MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, _Cache):
        return (value.__wrapped__,)
    if isinstance(value, _WRAPPING):
        return [getattr(value, part, None) for part in ("__func__", "fget", "func")]
    return ()


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else tuple(slots):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _is_variable(value: object) -> bool:
    """Return whether a variable of a file, a class or a closure may be state."""
    kinds = (*_PLAIN, *_CONTENTS, *ITERATORS, torch.Tensor, tuple, *_WITHOUT_COPIES)
    return isinstance(value, kinds) or hasattr(type(value), "__next__")


def _is_plain(name: str, value: object) -> bool:
    """Return whether a library's attribute may be put back: what it keeps for itself, such as that
    it has installed its hooks, belongs to what torch's own attributes hold.
    """
    return not name.startswith("_") and isinstance(
        value, bool | int | float | torch.Tensor | type(None)
    )


def _is_own(kind: type) -> bool:
    """Return whether a class is written in a file of the model's own, not in a library's."""
    return _is_own_file(getattr(sys.modules.get(kind.__module__), "__file__", None))


def _is_own_function(function: object) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and _is_own_file(code.co_filename)


@functools.cache
def _is_own_file(file: str | None) -> bool:
    return file is not None and not file.startswith("<") and not is_tool_path(file)


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes if a tensor is replaced or written to."""
    if tensor.is_inference():  # torch counts no writes to these
        return id(tensor), -1
    return id(tensor), tensor._version  # noqa: SLF001 - torch has no other


def _is_copied(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() <= _MOST_BYTES


def _copied(contents: Any) -> Any:  # noqa: ANN401 - any of those that have contents
    if isinstance(contents, _Cache):
        return contents.cache_info().currsize
    if isinstance(contents, np.ndarray):
        return contents if contents.nbytes > _MOST_BYTES else contents.copy()
    if isinstance(contents, contextvars.ContextVar):
        return contents.get(None)
    # Tensors and arrays inside are compared and put back as places of their own.
    return dict(contents) if isinstance(contents, dict) else [*contents]


def _fill(contents: Any, former: Any) -> None:  # noqa: ANN401 - as above
    """Put back what contents were."""
    if isinstance(contents, _Cache):
        contents.cache_clear()
    elif isinstance(contents, np.ndarray):
        if contents is not former:
            contents[...] = former
    elif isinstance(contents, torch.Tensor):
        pass  # it has been written back, if it could be
    elif isinstance(contents, contextvars.ContextVar):
        contents.set(former)
    elif isinstance(contents, _SEQUENCES):
        contents.clear()
        contents.extend(former)
    else:
        contents.clear()
        contents.update(former)


def _alike(former: Any, contents: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether contents hold the same objects, or equal plain ones."""
    if isinstance(contents, _Cache):
        return former == contents.cache_info().currsize
    if isinstance(contents, np.ndarray):
        return former is contents or bool(np.array_equal(former, contents, equal_nan=False))
    if isinstance(contents, contextvars.ContextVar):
        return _same(former, contents.get(None))
    now: Any = contents if isinstance(contents, dict) else [*contents]
    try:
        return bool(former == now)  # what is identical is not compared
    except (RuntimeError, TypeError, ValueError):
        pass  # of tensors or arrays
    if isinstance(contents, dict):
        former, now = [*former, *former.values()], [*now, *now.values()]
    return len(former) == len(now) and all(map(_same, former, now))


def _same(one: object, other: object) -> bool:
    """Return whether a place holds the same; what cannot be compared is if it is identical."""
    if isinstance(one, ITERATORS) and type(one) is type(other):
        return position(one) == position(other)
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(one, (*_PLAIN, tuple)):
        return False
    try:
        return bool(one == other)
    except (RuntimeError, TypeError, ValueError):  # of tensors or arrays
        return isinstance(other, tuple) and isinstance(one, tuple) and len(one) == len(other)

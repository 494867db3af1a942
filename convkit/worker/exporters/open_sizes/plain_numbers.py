"""Python's own functions that make a plain number of a size, such as `len(x)`, `int(size / 2)` and
`math.sqrt(size)`. While a module is traced, their like that keep sizes open take their place in the
files of its classes.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from convkit.worker.exporters.open_sizes.size_arithmetic import nearest

_Function = Callable[..., Any]
_ABSENT = object()


class _OpenType(type):
    """A number's type whose calls keep sizes open, and which is that type in all else."""

    own: type[int] | type[float]

    def __call__(cls, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as int() and float()
        if len(given) == 1 and isinstance(given[0], torch.SymInt | torch.SymFloat):
            return torch.sym_int(given[0]) if cls.own is int else torch.sym_float(given[0])
        return cls.own(*given, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.own)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.own)

    def __getattr__(cls, name: str) -> Any:  # noqa: ANN401 - such as int.from_bytes
        return getattr(cls.own, name)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.own

    def __hash__(cls) -> int:
        return hash(cls.own)


class _OpenInt(metaclass=_OpenType):
    own = int


class _OpenFloat(metaclass=_OpenType):
    own = float


def _length(given: Any) -> Any:  # noqa: ANN401 - anything
    return given.shape[0] if isinstance(given, torch.Tensor) and given.ndim else len(given)


def _keeping_open(usual: _Function, opened: Callable[[Any], Any]) -> _Function:
    """Return a function of one number that computes an open size by `opened`."""

    def function(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the usual one
        if len(given) == 1 and isinstance(given[0], torch.SymInt | torch.SymFloat):
            return opened(given[0])
        return usual(*given, **named)

    return function


def _rounded(number: Any, digits: int | None = None) -> Any:  # noqa: ANN401 - any number
    """`round()`; torch's own of a whole number ignores that digits before the point are asked."""
    if not isinstance(number, torch.SymInt | torch.SymFloat):
        return round(number, *([] if digits is None else [digits]))
    if isinstance(number, torch.SymInt) and (digits is None or digits >= 0):
        return number
    if digits is None:
        return nearest(number)
    whole = nearest(number * 10.0**digits)
    if isinstance(number, torch.SymInt):
        return whole * 10**-digits
    return whole / 10.0**digits


@contextlib.contextmanager
def rounding_sizes() -> Iterator[None]:
    """While this is active, `round(size, -1)` of an open size is that of Python; torch's own
    returns the size as it is, and says nothing.
    """
    usual = torch.SymInt.__round__
    torch.SymInt.__round__ = _rounded
    try:
        yield
    finally:
        torch.SymInt.__round__ = usual


def _with_remainder(one: Any, other: Any) -> Any:  # noqa: ANN401 - any numbers
    if isinstance(one, torch.SymInt | torch.SymFloat) or isinstance(other, torch.SymInt):
        return one // other, one % other
    return divmod(one, other)


def _root(size: torch.SymInt | torch.SymFloat) -> torch.SymFloat:
    return torch.sym_float(size) ** 0.5


def _as_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], torch.Tensor]:
    """Return a function of a number as one of a tensor without axes: torch has no such numbers."""
    return lambda size: function(torch.tensor(torch.sym_float(size), dtype=torch.float64))


_LOGARITHMS = {"log": torch.log, "log2": torch.log2, "log10": torch.log10}
_OPENED: Mapping[str, Callable[[Any], Any]] = {
    "sqrt": _root,
    "isqrt": lambda size: math.floor(_root(size)),
    "exp": _as_tensor(torch.exp),
    "rint": nearest,
    "round": nearest,
    **{name: _as_tensor(function) for name, function in _LOGARITHMS.items()},
}
_BUILTINS: Mapping[str, object] = {
    "len": _length,
    "int": _OpenInt,
    "float": _OpenFloat,
    "round": _rounded,
    "divmod": _with_remainder,
}


class _OpenLibrary:
    """`math` or `numpy` as a file sees it, with functions that keep sizes open."""

    def __init__(self, library: ModuleType) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the library has
        return _replacement(getattr(self._library, name))


def _replacement(usual: Any) -> Any:  # noqa: ANN401 - what a name of a file stands for
    """Return what takes the place of a file's function or library; itself for all else."""
    if usual is math or getattr(usual, "__name__", "") == "numpy":
        return _OpenLibrary(usual)
    name = getattr(usual, "__name__", "")
    is_numpy = type(usual).__module__ == "numpy" and name in {"ceil", "floor", *_OPENED}
    if usual is not getattr(math, name, None) and not is_numpy:
        return usual
    opened = _OPENED.get(name) or (getattr(math, name) if is_numpy else None)
    return usual if opened is None else _keeping_open(usual, opened)


@contextlib.contextmanager
def open_numbers(module: torch.nn.Module, root: str | None) -> Iterator[None]:
    """While this is active, the files of a module's classes, and those below `root`, keep sizes
    open where they make plain numbers of them.
    """
    with contextlib.ExitStack() as held:
        for names in _files(module, root):
            own = {name: _replacement(value) for name, value in names.items()}
            changed = {name: value for name, value in own.items() if value is not names[name]}
            changed |= {name: value for name, value in _BUILTINS.items() if name not in names}
            held.callback(_restore, names, {name: names.get(name, _ABSENT) for name in changed})
            names.update(changed)
        yield


def _files(module: torch.nn.Module, root: str | None) -> list[dict[str, Any]]:
    """Return the names of each file, without those of torch and convkit."""
    classes = {kind for each in module.modules() for kind in type(each).__mro__}
    functions = (each for kind in classes for each in vars(kind).values())
    found = [each.__globals__ for each in functions if isinstance(each, FunctionType)]
    if root is not None:
        files = ((each, getattr(each, "__file__", None)) for each in [*sys.modules.values()])
        found += [vars(each) for each, file in files if file and _is_below(file, root)]
    own = {id(names): names for names in found}
    return [names for names in own.values() if not _is_library(names)]


def _is_below(file: str, root: str) -> bool:
    return Path(file).is_relative_to(root) and "site-packages" not in file


def _is_library(names: Mapping[str, Any]) -> bool:
    return str(names.get("__name__", "")).partition(".")[0] in ("torch", "convkit", "builtins")


def _restore(names: dict[str, Any], before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if value is _ABSENT:
            del names[name]
        else:
            names[name] = value

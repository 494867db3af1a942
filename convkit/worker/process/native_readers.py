"""Functions of libraries that open a file in C++ or Rust, of which Python's audit events say
nothing: while they are watched, each raises the event `open` that Python's own raises.
"""

import builtins
import contextlib
import functools
import importlib
import operator
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

# A module, its function, and whether it is imported: code that imports a name from it has to find
# the watched one. Each takes the path first, or by one of these names.
_READERS = (
    ("torch", "from_file", True),
    ("torch", "UntypedStorage.from_file", True),
    ("torch.jit", "load", True),
    ("safetensors", "safe_open", True),
    ("safetensors.numpy", "safe_open", False),
    ("safetensors.torch", "safe_open", False),
    ("tokenizers", "Tokenizer.from_file", False),
    ("onnxruntime", "InferenceSession", False),
    ("cv2", "imread", False),
    ("h5py", "File", False),
    ("pyarrow.parquet", "read_table", False),
)
_WATCHED = "watched_by_convkit"
_PATHS = ("filename", "f", "path", "path_or_bytes", "name", "source")


@contextlib.contextmanager
def watched_readers() -> Iterator[Callable[[], None]]:
    """Watch the functions while the block runs. What it yields watches those of modules that were
    imported meanwhile, too.
    """
    with contextlib.ExitStack() as ended:

        def watch() -> None:
            for name, function, needed in _READERS:
                module = _module(name, needed=needed)
                if module is not None:
                    _watch(module, function, ended)

        watch()
        _watch_imports(watch, ended)
        yield watch


def _watch_imports(watch: Callable[[], None], ended: contextlib.ExitStack) -> None:
    """Watch the functions of a module as soon as an import statement has it."""
    waiting = {name.partition(".")[0] for name, _, needed in _READERS if not needed}
    inner = builtins.__import__

    @functools.wraps(inner)
    def imported(name: str, *args: Any, **kwargs: Any) -> ModuleType:  # noqa: ANN401 - as Python's
        module = inner(name, *args, **kwargs)
        if name.partition(".")[0] in waiting:
            watch()
        return module

    builtins.__import__ = imported
    ended.callback(setattr, builtins, "__import__", inner)


def _module(name: str, *, needed: bool) -> ModuleType | None:
    if needed and name not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return sys.modules.get(name)


def _watch(module: ModuleType, function: str, ended: contextlib.ExitStack) -> None:
    owner, _, name = function.rpartition(".")
    try:
        holder = operator.attrgetter(owner)(module) if owner else module
        inner = getattr(holder, name)
        if hasattr(inner, _WATCHED):
            return
        opened = _audited(inner)
        setattr(holder, name, staticmethod(opened) if isinstance(holder, type) else opened)
    except (AttributeError, TypeError):  # another release, or a type of C that cannot be changed
        return
    ended.callback(setattr, holder, name, inner)


def _audited(inner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inner, updated=())
    def opened(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's own
        given = args[0] if args else next((kwargs[name] for name in _PATHS if name in kwargs), None)
        if isinstance(given, str | bytes | os.PathLike):
            sys.audit("open", given, "r", os.O_RDONLY)
        return inner(*args, **kwargs)

    setattr(opened, _WATCHED, True)
    return opened

"""Imports in a stage's environment, checked against its seal.

Python trusts a `.pyc` whose header names its source's time and size, whatever code it holds. So
the environment's own `.pyc` files are never read: bytecode lies in a folder of its own, each file
behind the digest of its content, and is compiled anew where that does not fit. Sources and
extension modules are compared with the seal before they run, other mapped libraries when the stage
is done.
"""

import hashlib
import importlib.machinery
import os
import sys
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType
from typing import Any

from convkit.worker.seal import FILE_NAME, Problem, Seal, SealError, read_seal

BYTECODE = "bytecode"
_MARK = b"convkit\n"
_DIGEST_BYTES = 32


class _Environment:
    """This process's environment: its seal, and what was found wrong with it so far."""

    def __init__(self, seal: Seal, prefix: str) -> None:
        self.seal = seal
        self.prefixes = tuple(dict.fromkeys((prefix + os.sep, os.path.realpath(prefix) + os.sep)))
        self.problems: dict[str, Problem] = {}

    def inside(self, path: str) -> str | None:
        """Return a path relative to the environment, None for one outside it."""
        for prefix in self.prefixes:
            if path.startswith(prefix):
                inside = path[len(prefix) :]
                # uv makes `lib64` a link to `lib`, which some systems' Pythons look through.
                return "lib/" + inside[6:] if inside.startswith("lib64/") else inside
        return None

    def check(self, path: str) -> None:
        """Raise ImportError for a file of the environment that is not what was installed."""
        inside = self.inside(path)
        if inside is None:
            return
        problem = self.seal.problem(inside)
        if problem is not None:
            self.problems[inside] = problem
            raise ImportError(f"{path}: {problem} since it was installed")


_environment: _Environment | None = None


def guard_imports() -> None:
    """Check every import from here on, where the environment was built by convkit.

    The caller's own environment (`--toolchain host`) has no seal, and is its owner's concern.
    """
    global _environment  # noqa: PLW0603 - there is one import system in a process
    # The environment's own folder: `sys.prefix` may be a resolved one.
    prefix = str(Path(sys.executable).parent.parent)
    if not (Path(prefix) / FILE_NAME).is_file():
        return
    # Set by whoever started this process, for Pythons that it starts in turn.
    sys.pycache_prefix, sys.dont_write_bytecode = None, False
    try:
        _environment = _Environment(read_seal(Path(prefix)), prefix)
    except SealError as error:
        raise SystemExit(f"this environment cannot be trusted: {error}") from error
    sys.path_hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if _environment.inside(path)]:
        del sys.path_importer_cache[path]


def wrong_imports() -> dict[str, Problem]:
    """Return what of this process's environment was loaded, or was to be, and is not what was
    installed.
    """
    if _environment is None:
        return {}
    files = {str(getattr(module, "__file__", None) or "") for module in [*sys.modules.values()]}
    for path in files | _mapped_files():
        inside = _environment.inside(path)
        if inside is not None and (problem := _environment.seal.problem(inside)) is not None:
            _environment.problems[inside] = problem
    return dict(sorted(_environment.problems.items()))


def _mapped_files() -> set[str]:
    """Return the files that this process has mapped; none where the system does not say."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return set()
    lines = (line.split(None, 5) for line in text.splitlines())
    return {fields[5] for fields in lines if len(fields) > 5 and ".so" in fields[5]}


def _finder(path: str) -> Any:  # noqa: ANN401 - what a path hook returns
    if _environment is None or not _environment.inside(path + os.sep):
        raise ImportError("not in this environment")
    # No SourcelessFileLoader: a `.pyc` without its source is no package's.
    details: list[tuple[type[Loader], list[str]]] = [
        (_ExtensionLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_SourceLoader, importlib.machinery.SOURCE_SUFFIXES),
    ]
    return importlib.machinery.FileFinder.path_hook(*details)(path)


class _ExtensionLoader(importlib.machinery.ExtensionFileLoader):
    """Loads an extension module that is what was installed."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Check the file, then load it."""
        assert _environment is not None
        _environment.check(str(self.path))
        return super().create_module(spec)


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a source that is what was installed, and bytecode that was made of it here."""

    def path_stats(self, path: Any) -> Any:  # noqa: ANN401 - importlib's own types
        """Check a source, which importlib asks about before anything else."""
        assert _environment is not None
        _environment.check(str(path))
        return super().path_stats(path)

    def get_data(self, path: Any) -> bytes:  # noqa: ANN401 - as above
        """Return a file's bytes; raises OSError for bytecode that is absent or damaged."""
        file = _bytecode_file(str(path))
        return super().get_data(path) if file is None else _read_bytecode(file)

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:  # noqa: ANN401 - as above
        """Keep bytecode behind its digest."""
        file = _bytecode_file(str(path))
        if file is not None:
            content = _MARK + hashlib.sha256(data).digest() + bytes(data)
            super().set_data(file, content, _mode=_mode)


def _bytecode_file(path: str) -> str | None:
    """Return where the bytecode lies that importlib looks for at `path`; None for another file."""
    assert _environment is not None
    if not path.endswith(".pyc") or (inside := _environment.inside(path)) is None:
        return None
    return os.path.join(_environment.prefixes[0], BYTECODE, inside)  # noqa: PTH118 - every import


def _read_bytecode(file: str) -> bytes:
    with open(file, "rb") as stream:  # noqa: PTH123 - every import
        content = stream.read()
    start = len(_MARK) + _DIGEST_BYTES
    data = content[start:]
    if content[:start] != _MARK + hashlib.sha256(data).digest():
        raise OSError(f"{file}: damaged")
    return data

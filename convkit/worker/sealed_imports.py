"""Checks imports in a stage's environment against its seal.

Python trusts a `.pyc` file whose header matches its source's time and size, whatever code it
contains. So the environment's own `.pyc` files are never read. Bytecode is stored in a separate
folder, each file prefixed with the digest of its content, and is recompiled if the digest does not
match. Sources and extension modules are compared with the seal before they run, other mapped
libraries when the stage is done.
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
    """This process's environment: its seal, and the problems found so far."""

    def __init__(self, seal: Seal, prefix: str) -> None:
        self.seal = seal
        self.prefixes = tuple(dict.fromkeys((prefix + os.sep, os.path.realpath(prefix) + os.sep)))
        self.problems: dict[str, Problem] = {}

    def inside(self, path: str) -> str | None:
        """Return a path relative to the environment; None if it is outside."""
        for prefix in self.prefixes:
            if path.startswith(prefix):
                inside = path[len(prefix) :]
                # uv makes `lib64` a link to `lib`, and some systems' Pythons look there.
                return "lib/" + inside[6:] if inside.startswith("lib64/") else inside
        return None

    def check(self, path: str) -> None:
        """Raise ImportError if a file of the environment differs from the installed one."""
        inside = self.inside(path)
        if inside is None:
            return
        problem = self.seal.problem(inside)
        if problem is not None:
            self.problems[inside] = problem
            raise ImportError(f"{path}: {problem} since it was installed")


_environment: _Environment | None = None


def guard_imports() -> None:
    """Check every further import, if convkit built the environment.

    The caller's own environment (`--toolchain host`) has no seal; its owner is responsible for it.
    """
    global _environment  # noqa: PLW0603 - a process has only one import system
    # The environment's own folder: `sys.prefix` may have links resolved.
    prefix = str(Path(sys.executable).parent.parent)
    if not (Path(prefix) / FILE_NAME).is_file():
        return
    # Set by the parent process, for Pythons that this process starts.
    sys.pycache_prefix, sys.dont_write_bytecode = None, False
    try:
        _environment = _Environment(read_seal(Path(prefix)), prefix)
    except SealError as error:
        raise SystemExit(f"this environment cannot be trusted: {error}") from error
    sys.path_hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if _environment.inside(path)]:
        del sys.path_importer_cache[path]


def wrong_imports() -> dict[str, Problem]:
    """Return the files of this environment that were loaded, or requested, and differ from the
    installed ones.
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
    """Return the files mapped by this process; empty if the system cannot list them."""
    try:
        text = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return set()
    lines = (line.split(None, 5) for line in text.splitlines())
    return {fields[5] for fields in lines if len(fields) > 5 and ".so" in fields[5]}


def _finder(path: str) -> Any:  # noqa: ANN401 - what a path hook returns
    if _environment is None or not _environment.inside(path + os.sep):
        raise ImportError("not in this environment")
    # No SourcelessFileLoader: no package ships a `.pyc` without its source.
    details: list[tuple[type[Loader], list[str]]] = [
        (_ExtensionLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_SourceLoader, importlib.machinery.SOURCE_SUFFIXES),
    ]
    return importlib.machinery.FileFinder.path_hook(*details)(path)


class _ExtensionLoader(importlib.machinery.ExtensionFileLoader):
    """Loads an extension module if it matches the installed file."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Check the file, then load it."""
        assert _environment is not None
        _environment.check(str(self.path))
        return super().create_module(spec)


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads a source that matches the installed file, and bytecode that this class compiled from
    it.
    """

    def path_stats(self, path: Any) -> Any:  # noqa: ANN401 - importlib's own types
        """Check a source, whose stats importlib requests before anything else."""
        assert _environment is not None
        _environment.check(str(path))
        return super().path_stats(path)

    def get_data(self, path: Any) -> bytes:  # noqa: ANN401 - as above
        """Return a file's content; raises OSError if bytecode is missing or damaged."""
        file = _bytecode_file(str(path))
        return super().get_data(path) if file is None else _read_bytecode(file)

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:  # noqa: ANN401 - as above
        """Store bytecode prefixed with its digest."""
        file = _bytecode_file(str(path))
        if file is not None:
            content = _MARK + hashlib.sha256(data).digest() + bytes(data)
            super().set_data(file, content, _mode=_mode)


def _bytecode_file(path: str) -> str | None:
    """Return the actual location of the bytecode that importlib expects at `path`; None for other
    files.
    """
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

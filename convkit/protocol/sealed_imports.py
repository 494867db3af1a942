"""Checks imports in a stage's environment against its seal.

Python trusts a `.pyc` file whose header matches its source's time and size, whatever code it
contains. So the environment's own `.pyc` files are never read. Bytecode is stored in a separate
folder, named by the digest of its source, so that every environment with this source uses it. Each
file is prefixed with the digest of its content, and is recompiled if that does not match. Sources
and extension modules are compared with the seal before they run, other mapped libraries when the
stage is done.
"""

import contextlib
import hashlib
import importlib.machinery
import os
import sys
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType
from typing import Any

from convkit.protocol.environment_seal import (
    FILE_NAME,
    Problem,
    Seal,
    SealError,
    read_seal,
    renew_seal,
)

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
        """Return a path relative to the environment; None if it is outside. Packages that extend
        `sys.path` by `../tools` import from paths with such parts.
        """
        path = os.path.normpath(path)
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
    # A link, whose target a cleared cache or another machine lacks.
    with contextlib.suppress(OSError):
        Path(prefix, BYTECODE).resolve().mkdir(parents=True, exist_ok=True)
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
    with contextlib.suppress(OSError, SealError):  # a read-only home, or one being removed
        renew_seal(_environment.seal)
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
        """Check a source, whose stats importlib requests before anything else.

        Bytecode is found by its source's digest, so no time is needed to match the two.
        """
        assert _environment is not None
        _environment.check(str(path))
        return {**super().path_stats(path), "mtime": 0}

    def get_data(self, path: Any) -> bytes:  # noqa: ANN401 - as above
        """Return a file's content; raises OSError if bytecode is missing or damaged."""
        if not str(path).endswith(".pyc"):
            return super().get_data(path)
        return _read_bytecode(_shared_bytecode(str(path)))

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:  # noqa: ANN401 - as above
        """Store bytecode prefixed with its digest."""
        content = _MARK + hashlib.sha256(data).digest() + bytes(data)
        with contextlib.suppress(FileNotFoundError):  # the source was not installed
            super().set_data(_shared_bytecode(str(path)), content, _mode=_mode)


def bytecode_file(environment: str, digest: str, cached: str) -> str:
    """Return where the bytecode of a source with this SHA-256 is stored; `cached` is importlib's
    name for it, such as `module.cpython-311.pyc`.
    """
    _, tag = cached.split(".", 1)
    return os.path.join(environment, BYTECODE, digest[:2], f"{digest}.{tag}")  # noqa: PTH118 - every import


def _shared_bytecode(path: str) -> str:
    """Return the actual location of the bytecode that importlib expects at `path`; raises
    FileNotFoundError if its source was not installed.
    """
    assert _environment is not None
    folder, _, cached = (_environment.inside(path) or "").rpartition("/__pycache__/")
    digest = _environment.seal.digest(f"{folder}/{cached.partition('.')[0]}.py")
    if digest is None:
        raise FileNotFoundError(f"{path}: bytecode of a file that was not installed")
    return bytecode_file(_environment.prefixes[0], digest, cached)


def _read_bytecode(file: str) -> bytes:
    with open(file, "rb") as stream:  # noqa: PTH123 - every import
        content = stream.read()
    start = len(_MARK) + _DIGEST_BYTES
    data = content[start:]
    if content[:start] != _MARK + hashlib.sha256(data).digest():
        raise OSError(f"{file}: damaged")
    return data

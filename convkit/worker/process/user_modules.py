"""Imports the user's modules from their sources only.

Python trusts a `.pyc` file whose header matches its source's time and size, whatever code it
contains, and a stage's key and provenance name the source. So bytecode beside a recipe's modules is
neither read nor written.
"""

import functools
import importlib.machinery
import importlib.util
import os
import sys
from importlib.abc import Loader
from pathlib import Path
from typing import Any

_CONVKIT = str(Path(__file__).parents[2])


class _SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module's source each time."""

    def get_data(self, path: Any) -> bytes:  # noqa: ANN401 - importlib's own types
        """Return a source's content; raises OSError for bytecode, which importlib then ignores."""
        if str(path).endswith(".pyc"):
            raise OSError(f"{path}: bytecode of a user's module is not trusted")
        return super().get_data(path)

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:  # noqa: ANN401 - as above
        """Write nothing."""


def source_spec(name: str, file: Path) -> importlib.machinery.ModuleSpec | None:
    """Return the spec of a user's file as a module, whose further imports of the user's modules use
    their sources, too.
    """
    _import_from_sources()
    loader = _SourceOnlyLoader(name, str(file))
    return importlib.util.spec_from_file_location(name, file, loader=loader)


@functools.cache
def _import_from_sources() -> None:
    """Use sources in all folders but those of Python, the environment and convkit."""
    sys.path_hooks.insert(0, _finder)
    for folder in [folder for folder in sys.path_importer_cache if not is_tool_path(folder)]:
        del sys.path_importer_cache[folder]


def _finder(folder: str) -> Any:  # noqa: ANN401 - what a path hook returns
    if is_tool_path(folder):
        raise ImportError("not one of the user's folders")
    # Bytecode without a source is a separate file, which the key and the provenance name.
    details: list[tuple[type[Loader], list[str]]] = [
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_SourceOnlyLoader, importlib.machinery.SOURCE_SUFFIXES),
        (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
    ]
    return importlib.machinery.FileFinder.path_hook(*details)(folder)


def tool_folders() -> tuple[str, ...]:
    """Return the folders of Python, its environment and convkit, which contain no user's files."""
    # An environment contains nothing else; a system's Python shares its prefix with everybody, and
    # containers put models in /usr/src.
    prefixes = {sys.prefix, sys.exec_prefix} - {"/", "/usr", "/usr/local"}
    return (*sorted(prefixes), os.path.dirname(os.__file__), _CONVKIT)  # noqa: PTH120 - every import


def is_tool_path(folder: str) -> bool:
    """Return whether a file or folder belongs to Python, its environment or convkit."""
    place = os.path.abspath(folder) + os.sep  # noqa: PTH100 - every import
    packages = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
    return any(place.startswith(top.rstrip(os.sep) + os.sep) for top in tool_folders()) or any(
        part in place for part in packages
    )

"""Determines which of convkit's modules a job can run, by following imports, both top-level and
lazy.

A stage's key covers exactly these files: a change to code that a stage runs changes its key, and
any other change does not.
"""

import functools
import hashlib
import importlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NAME = re.compile(r"\w+")
_COMMENT = re.compile(r"#.*")

# These start every worker. They reach a job through its row, so no import leads to them.
_STARTS = ("convkit.worker.process.bootstrap", "convkit.worker.process.stage_process")


def code_digest(modules: Iterable[str], package: str = "convkit") -> str:
    """Return the digest of all files that a worker can run, starting from some modules.

    `package` is the top-level package of a third-party runtime, whose files are included.
    """
    lines = (f"{name} {_digest(name, package)}\n" for name in reached_modules(modules, package))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def package_folder(package: str) -> Path:
    """Return the folder of a top-level package."""
    return Path(str(importlib.import_module(package).__file__)).parent


def reached_modules(modules: Iterable[str], package: str = "convkit") -> list[str]:
    """Return the names of these modules and of all that they import, in the order of their files.

    It follows names and not paths, which take long to create and to hash: a run reads some 300
    files in its first half second.
    """
    pending = [*modules, *_STARTS]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += imports_of(name, package)
    return sorted(found, key=_ranks(package).__getitem__)


@functools.cache
def imports_of(module: str, package: str = "convkit") -> frozenset[str]:
    """Return the modules of convkit and one other package that a module imports, including their
    parent packages.
    """
    known = _modules(package)
    names: set[str] = set()
    text = "\n" + _source(module, package).decode("utf-8")
    for base, listed, plain in _imports(package).findall(text):
        names.add(base or plain)
        names |= {f"{base}.{name}" for name in _NAME.findall(_COMMENT.sub("", listed)) if base}
    found = set()
    for name in names:
        parts = name.split(".")
        # convkit's own __init__ always runs first and imports nothing.
        for length in range(2 if parts[0] == "convkit" else 1, len(parts) + 1):
            if (parent := ".".join(parts[:length])) in known:
                found.add(parent)
    return frozenset(found)


@functools.cache
def _imports(package: str) -> re.Pattern[str]:
    """Return a pattern that matches import statements of convkit and one other package, together
    with the line break before them: looking for that first is faster than trying every character.

    A regular expression instead of a parser: a run reads some 300 files within its first half
    second. A test proves that both agree on every file of the package.
    """
    name = rf"(?:convkit|{re.escape(package)})(?:\.\w+)*"
    return re.compile(
        rf"\n[ \t]*(?:from[ \t]+({name})[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+({name}))"
    )


@functools.cache
def _modules(package: str) -> Mapping[str, str]:
    """Return the file of every module of convkit and one other package, by dotted name."""
    modules = {}
    for top in {"convkit", package}:
        root = str(package_folder(top))
        for folder, _, files in os.walk(root):
            parent = top + folder.removeprefix(root).replace(os.sep, ".")
            for file in files:
                if file.endswith(".py"):
                    name = f"{parent}.{file.removesuffix('.py')}"
                    modules[name.removesuffix(".__init__")] = f"{folder}{os.sep}{file}"
    return modules


@functools.cache
def _ranks(package: str) -> Mapping[str, int]:
    """Return each module's place among all, sorted by the parts of their files' paths."""
    known = _modules(package)
    names = sorted(known, key=lambda name: known[name].replace(os.sep, "\0"))
    return {name: rank for rank, name in enumerate(names)}


@functools.cache
def _digest(module: str, package: str) -> str:
    return hashlib.sha256(_source(module, package)).hexdigest()


@functools.cache
def _source(module: str, package: str) -> bytes:
    return Path(_modules(package)[module]).read_bytes()

"""Determines which of convkit's modules a job can run, by following imports, both top-level and
lazy.

A stage's key covers exactly these files: a change to code that a stage runs changes its key, and
any other change does not.
"""

import functools
import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NAME = re.compile(r"\w+")
_COMMENT = re.compile(r"#.*")

# These start every worker. They reach a job through its row, so no import leads to them.
_STARTS = ("convkit.worker.bootstrap", "convkit.worker.process")


def code_digest(modules: Iterable[str], package: str = "convkit") -> str:
    """Return the digest of all files that a worker can run, starting from some modules.

    `package` is the top-level package of a third-party runtime, whose files are included.
    """
    digest = hashlib.sha256()
    known = _modules(package)
    names = {file: name for name, file in known.items()}
    for file in imported_files(modules, package):
        content = hashlib.sha256(_source(file)).hexdigest()
        digest.update(f"{names[file]} {content}\n".encode())
    return digest.hexdigest()


def imported_files(modules: Iterable[str], package: str = "convkit") -> tuple[Path, ...]:
    """Return the sorted files that modules can import, directly or indirectly, including their
    own.
    """
    known = _modules(package)
    pending = [known[name] for name in (*modules, *_STARTS)]
    found: set[Path] = set()
    while pending:
        file = pending.pop()
        if file not in found:
            found.add(file)
            pending += imports_of(file, package)
    return tuple(sorted(found))


@functools.cache
def imports_of(file: Path, package: str = "convkit") -> frozenset[Path]:
    """Return the files of convkit and one other package that a file imports, including their parent
    packages' `__init__.py`.
    """
    known = _modules(package)
    names: set[str] = set()
    for base, listed, plain in _imports(package).findall(_source(file).decode("utf-8")):
        names.add(base or plain)
        names |= {f"{base}.{name}" for name in _NAME.findall(_COMMENT.sub("", listed)) if base}
    files = set()
    for name in names:
        parts = name.split(".")
        # convkit's own __init__ always runs first and imports nothing.
        for length in range(2 if parts[0] == "convkit" else 1, len(parts) + 1):
            if (found := known.get(".".join(parts[:length]))) is not None:
                files.add(found)
    return frozenset(files)


@functools.cache
def _imports(package: str) -> re.Pattern[str]:
    """Return a pattern that matches import statements of convkit and one other package.

    A regular expression instead of a parser: a run reads some 300 files within its first half
    second. A test proves that both agree on every file of the package.
    """
    name = rf"(?:convkit|{re.escape(package)})(?:\.\w+)*"
    return re.compile(
        rf"^[ \t]*(?:from[ \t]+({name})[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+({name}))",
        re.MULTILINE,
    )


@functools.cache
def _modules(package: str) -> Mapping[str, Path]:
    """Return every module of convkit and one other package, by dotted name."""
    modules = {}
    for top in {"convkit", package}:
        folder = Path(str(importlib.import_module(top).__file__)).parent
        for file in folder.rglob("*.py"):
            name = ".".join(file.relative_to(folder.parent).with_suffix("").parts)
            modules[name.removesuffix(".__init__")] = file
    return modules


@functools.cache
def _source(file: Path) -> bytes:
    return file.read_bytes()

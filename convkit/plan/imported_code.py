"""Which of convkit's own code can run in a job: what its modules import, at the top or where used.

A stage's key covers exactly these files, so that a change to code that a stage runs changes its
key and a change elsewhere does not.
"""

import functools
import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NAME = re.compile(r"\w+")
_COMMENT = re.compile(r"#.*")

# What starts every worker and reaches a job by its row, so that no import leads to it.
_STARTS = ("convkit.worker.bootstrap", "convkit.worker.process")


def code_digest(modules: Iterable[str], package: str = "convkit") -> str:
    """Return the digest of the files that a worker can come to run from some modules.

    `package` is the top package of a runtime that comes from elsewhere: its files count too.
    """
    digest = hashlib.sha256()
    known = _modules(package)
    names = {file: name for name, file in known.items()}
    for file in imported_files(modules, package):
        content = hashlib.sha256(_source(file)).hexdigest()
        digest.update(f"{names[file]} {content}\n".encode())
    return digest.hexdigest()


def imported_files(modules: Iterable[str], package: str = "convkit") -> tuple[Path, ...]:
    """Return the files that modules can come to import, their own included, sorted."""
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
    """Return the files of convkit and of one other package that a file imports, with the packages
    that contain them.
    """
    known = _modules(package)
    names: set[str] = set()
    for base, listed, plain in _imports(package).findall(_source(file).decode("utf-8")):
        names.add(base or plain)
        names |= {f"{base}.{name}" for name in _NAME.findall(_COMMENT.sub("", listed)) if base}
    files = set()
    for name in names:
        parts = name.split(".")
        # convkit's own __init__ runs first for everybody; it imports nothing by itself.
        for length in range(2 if parts[0] == "convkit" else 1, len(parts) + 1):
            if (found := known.get(".".join(parts[:length]))) is not None:
                files.add(found)
    return frozenset(files)


@functools.cache
def _imports(package: str) -> re.Pattern[str]:
    """Return what finds import statements of convkit and of one other package.

    A regular expression instead of a parser: a run reads some 300 files within its first half
    second. A test holds the two equal for every file of the package.
    """
    name = rf"(?:convkit|{re.escape(package)})(?:\.\w+)*"
    return re.compile(
        rf"^[ \t]*(?:from[ \t]+({name})[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+({name}))",
        re.MULTILINE,
    )


@functools.cache
def _modules(package: str) -> Mapping[str, Path]:
    """Return every module of convkit, and of one other package, by its dotted name."""
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

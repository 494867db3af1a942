"""Which of convkit's own code can run in a job: what its modules import, at the top or where used.

A stage's key covers exactly these files, so that a change to code that a stage runs changes its
key and a change elsewhere does not.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import convkit

# A regular expression in place of a parser: a run reads some 300 files, within its first half
# second. A test holds the two equal for every file of the package.
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(convkit[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+(convkit[\w.]*))",
    re.MULTILINE,
)
_NAME = re.compile(r"\w+")
_COMMENT = re.compile(r"#.*")

# What starts every worker and reaches a job by its row, so that no import leads to it.
_STARTS = ("convkit.worker.bootstrap", "convkit.worker.process")


def code_digest(modules: Iterable[str]) -> str:
    """Return the digest of the files that a worker can come to run from some modules of convkit."""
    root = _package().parent
    digest = hashlib.sha256()
    for file in imported_files(modules):
        content = hashlib.sha256(_source(file)).hexdigest()
        digest.update(f"{file.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def imported_files(modules: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of convkit that modules can come to import, their own included, sorted."""
    known = _modules()
    pending = [known[name] for name in (*modules, *_STARTS)]
    found: set[Path] = set()
    while pending:
        file = pending.pop()
        if file not in found:
            found.add(file)
            pending += imports_of(file)
    return tuple(sorted(found))


@functools.cache
def imports_of(file: Path) -> frozenset[Path]:
    """Return the files of convkit that one file imports, the packages they lie in included."""
    known = _modules()
    names: set[str] = set()
    for base, listed, plain in _IMPORT.findall(_source(file).decode("utf-8")):
        names.add(base or plain)
        names |= {f"{base}.{name}" for name in _NAME.findall(_COMMENT.sub("", listed)) if base}
    files = set()
    for name in names:
        parts = name.split(".")
        # The package's own __init__ runs first for everybody; it imports nothing by itself.
        for length in range(2, len(parts) + 1):
            if (found := known.get(".".join(parts[:length]))) is not None:
                files.add(found)
    return frozenset(files)


def _package() -> Path:
    return Path(convkit.__file__).parent


@functools.cache
def _modules() -> Mapping[str, Path]:
    """Return every module of convkit by its dotted name."""
    root = _package().parent
    modules = {}
    for file in _package().rglob("*.py"):
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = file
    return modules


@functools.cache
def _source(file: Path) -> bytes:
    return file.read_bytes()

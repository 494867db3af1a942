"""Compares an environment's files with their packages' RECORDs.

A file edited in place, or a damaged cache that an environment was copied from, changes what runs
under an unchanged version. RECORD (PyPA's specification of recorded installed projects) lists each
file's SHA-256. It is not a signature: whoever changes a file on purpose can also change its RECORD.
"""

import base64
import binascii
import csv
import dataclasses
import functools
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

# Created by Python, or by uv for the environment as a whole; no package lists them.
_OWN_FILES = frozenset({"_virtualenv.py", "_virtualenv.pth"})
_COMPILED = (".pyc", ".pyo")


@dataclasses.dataclass(frozen=True)
class WrongFile:
    """A file that differs from the installed one.

    `path` is relative to the folder of packages if it was compared with RECORDs, and to the
    environment if it was compared with the seal.
    """

    path: str
    problem: Literal["changed", "missing", "in no RECORD", "unexpected", "unreadable"]

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclasses.dataclass(frozen=True)
class _Recorded:
    path: str
    algorithm: str
    digest: str


def wrong_files(
    environment: Path, digested: Collection[str] = frozenset()
) -> tuple[WrongFile, ...]:
    """Return the files changed, removed or added since an environment's packages were installed,
    sorted by path.

    Files listed without a digest (RECORD itself) only have to exist. Bytecode is skipped: Python
    writes it. `digested` are files inside the environment that have their recorded digest.
    """
    found: list[WrongFile] = []
    for packages in sorted(environment.glob("lib/python*/site-packages")):
        below = packages.relative_to(environment).as_posix()
        inside = {path[len(below) + 1 :] for path in digested if path.startswith(f"{below}/")}
        found += wrong_package_files(packages, inside)
    return tuple(sorted(set(found), key=lambda wrong: wrong.path))


def wrong_package_files(
    packages: Path, digested: Collection[str] = frozenset()
) -> tuple[WrongFile, ...]:
    """Return the files changed, removed or added in a folder of installed packages, like
    `wrong_files`; `digested` are paths inside that folder.
    """
    recorded, found = _read_records(packages)
    unknown = [entry for entry in recorded if entry.path not in digested]
    # Hashing releases the GIL, so threads use every core.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # A few large batches: environments contain tens of thousands of small files.
        chunks = [unknown[start::64] for start in range(64)]
        found += [
            wrong
            for part in pool.map(functools.partial(_compare, packages), chunks)
            for wrong in part
        ]
    listed = {os.path.normpath(entry.path) for entry in recorded}
    found += [WrongFile(path, "in no RECORD") for path in _files(packages) if path not in listed]
    return tuple(sorted(set(found), key=lambda wrong: wrong.path))


def recorded_digests(environment: Path) -> dict[str, str]:
    """Return the SHA-256 digests listed in RECORDs, in hexadecimal, by path inside the
    environment.
    """
    digests = {}
    for packages in sorted(environment.glob("lib/python*/site-packages")):
        below = packages.relative_to(environment).as_posix()
        for entry in _read_records(packages)[0]:
            if entry.algorithm == "sha256" and entry.digest:
                path = os.path.normpath(f"{below}/{entry.path}")
                digests[path] = _decoded(entry.digest).hex()
    return digests


def _read_records(packages: Path) -> tuple[list[_Recorded], list[WrongFile]]:
    entries: list[_Recorded] = []
    damaged: list[WrongFile] = []
    for information in sorted(packages.glob("*.dist-info")):
        record = information / "RECORD"
        try:
            with record.open(encoding="utf-8", newline="") as stream:
                for row in csv.reader(stream):
                    algorithm, _, digest = (row[1] if len(row) > 1 else "").partition("=")
                    entries.append(_Recorded(row[0], algorithm, digest))
        except FileNotFoundError:
            damaged.append(WrongFile(f"{information.name}/RECORD", "missing"))
        except (OSError, ValueError, IndexError, csv.Error):
            damaged.append(WrongFile(f"{information.name}/RECORD", "unreadable"))
    return entries, damaged


def _compare(packages: Path, entries: Iterable[_Recorded]) -> list[WrongFile]:
    wrong = []
    for entry in entries:
        if entry.path.endswith(_COMPILED):
            continue
        try:
            with open(os.path.join(packages, entry.path), "rb") as stream:  # noqa: PTH118, PTH123 - 20,000 files
                if entry.digest and hashlib.file_digest(
                    stream, entry.algorithm
                ).digest() != _decoded(entry.digest):
                    wrong.append(WrongFile(entry.path, "changed"))
        except (FileNotFoundError, NotADirectoryError):
            wrong.append(WrongFile(entry.path, "missing"))
        except (OSError, ValueError):
            wrong.append(WrongFile(entry.path, "unreadable"))
    return wrong


def _decoded(digest: str) -> bytes:
    """Decode base64 without padding; raises ValueError if it is invalid."""
    try:
        return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4))
    except binascii.Error as error:
        raise ValueError(f"not base64: {digest}") from error


def _files(packages: Path) -> Iterator[str]:
    """Yield the files below a folder, as relative paths, except bytecode and files that uv adds."""
    for parent, _, names in os.walk(packages):
        below = os.path.relpath(parent, packages)
        for name in names:
            if not name.endswith(_COMPILED) and not (below == "." and name in _OWN_FILES):
                yield os.path.normpath(os.path.join(below, name))  # noqa: PTH118 - 20,000 files

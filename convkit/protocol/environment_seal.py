"""The seal of an environment: a list of its files, written once they were found to match the
packages' RECORDs.

    convkit-seal 1 <SHA-256 of the lines below>
    <SHA-256> <size> <mtime ns> <ctime ns> <inode> <path inside the environment>

A link's digest is the digest of `link:` and its target. The numbers serve as a cache: if they
match, the file has not been written to since, and its digest need not be computed. Only the kernel
sets a file's ctime, so an edit shows even if the modification time was restored. The numbers also
differ in a copied environment, and after another environment began or ceased to share a file. Files
are then digested when used, and their new numbers replace the old ones.

The seal detects accidents and edits, not an attacker who also rewrites the seal.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Literal

FILE_NAME = "convkit-seal"
PART = ".part"  # ends the name of a seal that is being written
_FORMAT = "convkit-seal 1"
_SMALL_BYTES = 2**20
# Python runs these before a worker's first line: the interpreter, its configuration, and what
# `site` executes. They come first in the list.
_STARTING_MODULES = ("sitecustomize", "usercustomize", "_virtualenv", "_distutils_hack")

Problem = Literal["changed", "missing", "unexpected", "unreadable"]


class SealError(Exception):
    """An environment's seal is missing or damaged."""


class Seal:
    """The files of an environment as built, by path inside it."""

    def __init__(self, root: Path, entries: dict[str, str]) -> None:
        self.root = root
        self.entries = entries
        self.renewed: dict[str, str] = {}  # entries whose files have other numbers, but the digest

    def digest(self, path: str) -> str | None:
        """Return the SHA-256 of a file as built; None if the environment had no such file."""
        entry = self.entries.get(path)
        return None if entry is None else entry.partition(" ")[0]

    def problem(self, path: str, *, digest: bool = False) -> Problem | None:
        """Return what is wrong with a file or link, identified by its path inside the environment.

        Its content is read only if its numbers differ or `digest` is set.
        """
        file = os.path.join(self.root, path)  # noqa: PTH118 - thousands of files at every start
        try:
            numbers = numbers_of(file)
            known = self.entries.get(path)
            if known is None:
                return "unexpected"
            sha256, _, sealed = known.partition(" ")
            if sealed == numbers and not digest:
                return None
            if digest_entry(file) != sha256:
                return "changed"
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "unreadable"
        if sealed != numbers:
            self.renewed[path] = f"{sha256} {numbers}"
        return None

    def starting_problems(self) -> list[tuple[str, Problem]]:
        """Return problems with the files that run before any check inside Python can."""
        sealed = {path for path in self.entries if is_starting(path)}
        found = {path for path in _starting_files(self.root) if is_starting(path)}
        problems = [(path, self.problem(path)) for path in sorted(sealed | found)]
        return [(path, problem) for path, problem in problems if problem is not None]


def read_seal(root: Path, *, starting_only: bool = False) -> Seal:
    """Return an environment's seal; raises SealError if it is missing or damaged.

    `starting_only` stops after the files that run before any check inside Python can.
    """
    try:
        content = (root / FILE_NAME).read_bytes()
    except OSError as error:
        raise SealError(f"{FILE_NAME}: {error.strerror or error}") from error
    head, _, body = content.partition(b"\n")
    if head.decode("utf-8", "replace") != f"{_FORMAT} {hashlib.sha256(body).hexdigest()}":
        raise SealError(f"{FILE_NAME}: damaged, or in another format")
    entries = {}
    for line in body.decode("utf-8", "surrogateescape").splitlines():
        sha256, size, modified, changed, inode, path = line.split(" ", 5)
        if starting_only and not is_starting(path):
            break
        entries[path] = f"{sha256} {size} {modified} {changed} {inode}"
    return Seal(root, entries)


def write_seal(root: Path, digests: Iterable[tuple[str, str]]) -> None:
    """Write an environment's seal from each file's path and digest; raises OSError.

    Raises SealError for a path that cannot be written as one line.
    """
    entries = {}
    for path, sha256 in digests:
        if path.splitlines() != [path]:
            raise SealError(f"a file's name has a line break: {path!r}")
        entries[path] = f"{sha256} {numbers_of(os.path.join(root, path))}"  # noqa: PTH118 - as above
    _write(root, entries)


def renew_seal(seal: Seal) -> None:
    """Write the numbers of files that were digested since the seal was read, so that nobody needs
    to digest them again; raises OSError and SealError.
    """
    if seal.renewed:
        # Other workers may have renewed other entries in the meantime.
        _write(seal.root, read_seal(seal.root).entries | seal.renewed)


def _write(root: Path, entries: dict[str, str]) -> None:
    paths = sorted(entries, key=lambda path: (not is_starting(path), path))
    body = "".join(f"{entries[path]} {path}\n" for path in paths).encode("utf-8", "surrogateescape")
    head = f"{_FORMAT} {hashlib.sha256(body).hexdigest()}\n".encode()
    staging = root / f"{FILE_NAME}.{os.getpid()}{PART}"
    try:
        staging.write_bytes(head + body)
        staging.replace(root / FILE_NAME)
    finally:
        staging.unlink(missing_ok=True)


def digest_entry(file: str) -> str:
    """Return the SHA-256 of a file's content or a link's target; raises OSError."""
    status = os.lstat(file)
    if stat.S_ISLNK(status.st_mode):
        return hashlib.sha256(b"link:" + os.fsencode(os.readlink(file))).hexdigest()  # noqa: PTH115
    with open(file, "rb", buffering=0) as stream:  # noqa: PTH123 - as above
        if status.st_size > _SMALL_BYTES:
            return hashlib.file_digest(stream, "sha256").hexdigest()
        # Most files are small, and a buffer for large ones costs more than digesting them.
        return hashlib.sha256(stream.read()).hexdigest()


def is_starting(path: str) -> bool:
    """Return True if Python reads or runs the file before a worker's first line."""
    place = PurePosixPath(path)
    if path in ("pyvenv.cfg", "lib", "lib64", "convkit.json"):
        return True
    if place.parent.as_posix() == "bin":
        return place.name.startswith("python")
    inside = place.parts[:1] == ("lib",) and "site-packages" in place.parts[1:3]
    if not inside:
        return False
    below = place.parts[place.parts.index("site-packages") + 1 :]
    if len(below) == 1 and place.suffix in (".pth", ".start"):
        return True
    return below[0].partition(".")[0] in _STARTING_MODULES and place.suffix != ".pyc"


def _starting_files(root: Path) -> Iterable[str]:
    """Yield the current files that may run at startup."""
    for folder in (root, root / "bin", *root.glob("lib/python*/site-packages")):
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    path = Path(entry.path).relative_to(root).as_posix()
                    if entry.is_file() or entry.is_symlink():
                        yield path
                    elif entry.name in _STARTING_MODULES:
                        for file in Path(entry.path).rglob("*"):
                            if file.is_file():
                                yield file.relative_to(root).as_posix()
        except FileNotFoundError:
            continue


def numbers_of(file: str) -> str:
    """Return the numbers that a write to a file changes; raises OSError."""
    status = os.lstat(file)
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"

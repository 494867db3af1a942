"""SHA-256 of values, files and folders, and JSON files sealed with their own digest."""

import contextlib
import dataclasses
import hashlib
import json
import json.encoder
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from convkit.host.store.durable_files import write_whole
from convkit.host.store.own_output import is_home, is_own_output
from convkit.protocol.json_codec import CodecError, Json, decode, encode, parse_json

T = TypeVar("T")

_quoted = json.encoder.encode_basestring
_CONSTANTS = {None: "null", True: "true", False: "false"}

# A file that changed less than this before it was digested could change again with the same time
# stamp. Kernels use ticks of at most 10 ms. Filesystems that store whole seconds, or two (FAT), are
# recognized by stamps that are multiples of 10 ms.
_TICK_NANOSECONDS = 10_000_000
_SETTLED_SECONDS = 0.1
_SETTLED_SECONDS_OF_COARSE_STAMPS = 2.0
# Digesting a file of this size is as fast as reading a cached digest.
_SMALL_BYTES = 16 * 1024


def digest_json(value: object) -> str:
    """Return the digest of a value's canonical JSON."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path | str) -> str:
    """Return a file's digest."""
    with open(path, "rb") as stream:  # noqa: PTH123 - a run digests a thousand files as it starts
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_tree(folder: Path, digest: Callable[[Path], str] | None = None) -> str:
    """Return a folder's digest, over the relative paths and contents of its `tree_files`."""
    root = os.fspath(folder)
    return digest_json(
        {
            path.removeprefix(root).replace(os.sep, "/").lstrip("/"): digest_file(path)
            if digest is None
            else digest(Path(path))
            for path in tree_files(folder)
        }
    )


def tree_files(folder: Path) -> Iterator[str]:
    """Yield the path of each file below a folder, without caches, homes of convkit, and what it
    prints to.
    """
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(
            name
            for name in folders
            if name not in ("__pycache__", ".git") and not is_home(f"{parent}{os.sep}{name}")
        )
        # No Path: creating those takes half of the time.
        paths = (f"{parent}{os.sep}{name}" for name in sorted(files))
        yield from (path for path in paths if not is_own_output(path))


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value as JSON, atomically: other processes see either the old file or the new one.
    With `durable`, this also holds after a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, indented_json(value), durable=durable)


def indented_json(value: object) -> str:
    """Return a value as JSON with sorted keys, a line for each item and one space for each level.

    The bytes are those of `json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)`, which
    takes twice as long: with an indent, the standard library does not use its C encoder.
    """
    return _indented(encode(value), "\n")


def _indented(value: Json, line: str) -> str:
    """Return a JSON value's text; `line` starts a new line at its own level."""
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, dict | list):
        inner = f"{line} "
        if isinstance(value, dict):
            items = [f"{_quoted(name)}: {_indented(value[name], inner)}" for name in sorted(value)]
        else:
            items = [_indented(item, inner) for item in value]
        first, last = "{}" if isinstance(value, dict) else "[]"
        return f"{first}{inner}{f',{inner}'.join(items)}{line}{last}" if items else first + last
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else repr(value)


class SealBroken(ValueError):  # noqa: N818 - a state of a file
    """A file differs from what convkit wrote; the message explains how."""


def seal(value: object) -> dict[str, Json]:
    """Return a value with its digest, as JSON values."""
    content = encode(value)
    return {"digest": digest_json(content), "content": content}


def unseal(text: bytes, kind: type[T]) -> T:
    """Return the sealed value; raises SealBroken if it was altered."""
    try:
        sealed: Json = parse_json(text)
        content, digest = sealed["content"], sealed["digest"]
        matches = set(sealed) == {"content", "digest"} and digest_json(content) == digest
        value = decode(kind, content) if matches else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SealBroken(f"it cannot be read: {error}") from error
    if value is None:
        raise SealBroken("its contents do not match the digest in it")
    return value


def write_sealed(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value and its digest, like `write_json`."""
    write_json(path, seal(value), durable=durable)


def read_sealed(path: Path, kind: type[T]) -> T:
    """Return a value that `write_sealed` wrote.

    Raises OSError if the file cannot be read, SealBroken if its content was altered.
    """
    return unseal(path.read_bytes(), kind)


def is_unsealed(path: Path, kind: type[object]) -> bool:
    """Return True if a file was written by an earlier release: an intact value without a digest."""
    try:
        decode(kind, parse_json(path.read_bytes()))
    except (OSError, ValueError, CodecError, RecursionError):
        return False
    return True


# Inode, size, mtime and ctime in nanoseconds. Programs cannot reset the ctime.
FileStatus = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class KnownDigest:
    """A file's digest, valid while its status matches. `path` is the digest of the file's path."""

    path: str
    status: FileStatus
    sha256: str


class DigestCache:
    """Caches files' digests by their status, so that large files are read once.

    The cache is a folder with one entry per path. Damaged entries are discarded, and the file is
    digested again. What this process has digested, it need not look up again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[FileStatus, str]] = {}

    def file(self, path: Path) -> str:
        """Return a file's digest, from memory or from the cache if the file is unchanged."""
        now, status = time.time(), path.stat()
        found = self._known.get(path)
        if found is not None and found[0] == file_status(status):
            return found[1]
        settled = now > status.st_ctime + seconds_to_settle(status)
        sha256 = self._digest(path, status, settled=settled)
        if settled:
            self._known[path] = file_status(status), sha256
        return sha256

    def _digest(self, path: Path, status: os.stat_result, *, settled: bool) -> str:
        if status.st_size <= _SMALL_BYTES:
            return digest_file(path)
        entry = self._entry(path)
        try:
            known = read_sealed(entry, KnownDigest)
        except (OSError, SealBroken):
            known = None
        if known is not None and known.path == entry.stem and known.status == file_status(status):
            return known.sha256
        sha256 = digest_file(path)
        if settled:
            self._remember(entry, status, sha256)
        return sha256

    def remember(self, path: Path, sha256: str) -> None:
        """Cache the digest of a complete file that this process has just written or moved."""
        status = path.stat()
        coarse = seconds_to_settle(status) > _SETTLED_SECONDS
        if status.st_size > _SMALL_BYTES and not coarse:
            self._remember(self._entry(path), status, sha256)

    def forget(self, path: Path) -> None:
        """Drop the digest of a file that is about to be removed."""
        self._entry(path).unlink(missing_ok=True)

    def tree(self, folder: Path) -> str:
        """Return a folder's digest, as `digest_tree` does."""
        return digest_tree(folder, self.file)

    def _entry(self, path: Path) -> Path:
        # As bytes: names need not be UTF-8.
        name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
        return self._folder / f"{name}.json"

    def _remember(self, entry: Path, status: os.stat_result, sha256: str) -> None:
        known = KnownDigest(entry.stem, file_status(status), sha256)
        with contextlib.suppress(OSError):  # a full disk, or somebody else's folder
            write_sealed(entry, known, durable=False)


def file_status(status: os.stat_result) -> FileStatus:
    """Return the part of a file's status that tells whether it has changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def seconds_to_settle(status: os.stat_result) -> float:
    """Return for how long after its last change a file could change again with the same stamp."""
    if status.st_ctime_ns % _TICK_NANOSECONDS == 0:
        return _SETTLED_SECONDS_OF_COARSE_STAMPS
    return _SETTLED_SECONDS

"""SHA-256 of values, files and folders, and JSON files that hold the digest of what they say."""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from pathlib import Path
from typing import TypeVar

from convkit.codec import CodecError, Json, decode, encode
from convkit.store.files import replace_durably

T = TypeVar("T")

# A file that changed this many seconds before it was digested could change again under the same
# time stamp. Kernels stamp in ticks of at most 10 ms; filesystems that store whole seconds, or two
# (FAT), show it by stamps that are multiples of 10 ms.
_TICK_NANOSECONDS = 10_000_000
_SETTLED_SECONDS = 0.1
_SETTLED_SECONDS_OF_COARSE_STAMPS = 2.0
# Digesting a file of this size is as fast as reading a remembered digest.
_SMALL_BYTES = 16 * 1024


def digest_json(value: object) -> str:
    """Return the digest of a value's canonical JSON."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return a file's digest."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value as JSON, atomically: another process sees the old file or the new one. With
    `durable`, so does whoever looks after a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}.part")
    try:
        staging.write_text(
            json.dumps(encode(value), indent=1, sort_keys=True, ensure_ascii=False),
            encoding="utf-8",
        )
        if durable:
            replace_durably(staging, path)
        else:
            staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


class SealBroken(ValueError):  # noqa: N818 - a state of a file
    """A file is not what convkit wrote; the message says in what way."""


def seal(value: object) -> dict[str, Json]:
    """Return a value together with its digest, as JSON values."""
    content = encode(value)
    return {"digest": digest_json(content), "content": content}


def unseal(text: bytes, kind: type[T]) -> T:
    """Return the value that was sealed; raises SealBroken where it is not the one."""
    try:
        sealed: Json = json.loads(text)
        content, digest = sealed["content"], sealed["digest"]
        matches = set(sealed) == {"content", "digest"} and digest_json(content) == digest
        value = decode(kind, content) if matches else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SealBroken(f"it cannot be read: {error}") from error
    if value is None:
        raise SealBroken("its contents do not match the digest in it")
    return value


def write_sealed(path: Path, value: object, *, durable: bool = True) -> None:
    """Write a value and its digest as `write_json` does."""
    write_json(path, seal(value), durable=durable)


def read_sealed(path: Path, kind: type[T]) -> T:
    """Return the value that `write_sealed` wrote.

    Raises OSError where the file cannot be read, and SealBroken where its bytes are not those that
    were written.
    """
    return unseal(path.read_bytes(), kind)


def is_unsealed(path: Path, kind: type[object]) -> bool:
    """Say whether a file is what earlier releases wrote: a whole value, without a digest."""
    try:
        decode(kind, json.loads(path.read_bytes()))
    except (OSError, ValueError, CodecError, RecursionError):
        return False
    return True


@dataclasses.dataclass(frozen=True)
class KnownDigest:
    """A file's digest while its status is this one: inode, size, mtime and ctime in nanoseconds.

    The change time is what no program can set back. `path` is the digest of the file's path.
    """

    path: str
    status: tuple[int, int, int, int]
    sha256: str


class DigestCache:
    """Remembers files' digests by their status, so that big files are read once.

    What it remembers lies in a folder, an entry for each path. An entry that is damaged is
    forgotten, and the file digested anew.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, path: Path) -> str:
        """Return a file's digest, from memory where the file has not changed."""
        now = time.time()
        status = path.stat()
        if status.st_size <= _SMALL_BYTES:
            return digest_file(path)
        entry = self._entry(path)
        try:
            known = read_sealed(entry, KnownDigest)
        except (OSError, SealBroken):
            known = None
        if known is not None and known.path == entry.stem and known.status == _identity(status):
            return known.sha256
        sha256 = digest_file(path)
        if now > status.st_ctime + _seconds_to_settle(status):
            self._remember(entry, status, sha256)
        return sha256

    def remember(self, path: Path, sha256: str) -> None:
        """Remember the digest of a file that this process has just written or moved, whole."""
        status = path.stat()
        coarse = _seconds_to_settle(status) > _SETTLED_SECONDS
        if status.st_size > _SMALL_BYTES and not coarse:
            self._remember(self._entry(path), status, sha256)

    def tree(self, folder: Path) -> str:
        """Return the digest of a folder: relative paths and contents, nothing else. Caches inside
        it are left out.
        """
        entries = {}
        for parent, folders, files in os.walk(folder, followlinks=True):
            folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
            for name in sorted(files):
                path = Path(parent) / name
                entries[path.relative_to(folder).as_posix()] = self.file(path)
        return digest_json(entries)

    def _entry(self, path: Path) -> Path:
        # As bytes: names need not be UTF-8.
        name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()
        return self._folder / f"{name}.json"

    def _remember(self, entry: Path, status: os.stat_result, sha256: str) -> None:
        known = KnownDigest(entry.stem, _identity(status), sha256)
        with contextlib.suppress(OSError):  # a full disk, a folder of somebody else's
            write_sealed(entry, known, durable=False)


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _seconds_to_settle(status: os.stat_result) -> float:
    if status.st_ctime_ns % _TICK_NANOSECONDS == 0:
        return _SETTLED_SECONDS_OF_COARSE_STAMPS
    return _SETTLED_SECONDS

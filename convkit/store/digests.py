"""SHA-256 of values, files and folders."""

import hashlib
import json
import os
import time
from pathlib import Path

from convkit.codec import Json, encode

_CHUNK = 1 << 20
# A file changed within this many seconds could change again under the same time stamp: its digest
# is not remembered.
_SETTLED_SECONDS = 2.0


def digest_json(value: object) -> str:
    """Return the digest of a value's canonical JSON."""
    text = json.dumps(encode(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """Return a file's digest."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class DigestCache:
    """Remembers files' digests by path, size, modification time and inode, so that big files are
    read once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, path: Path) -> str:
        """Return a file's digest, from memory where the file has not changed."""
        status = path.stat()
        stamp = [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino]
        entry = self._folder / (hashlib.sha256(stamp[0].encode()).hexdigest() + ".json")  # type: ignore[attr-defined]
        known = _read_json(entry)
        if isinstance(known, dict) and known.get("stamp") == stamp:
            return str(known["sha256"])
        sha256 = digest_file(path)
        if time.time() - status.st_mtime > _SETTLED_SECONDS:
            write_json(entry, {"stamp": stamp, "sha256": sha256})
        return sha256

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


def _read_json(path: Path) -> Json:
    """Return a JSON file's value, or None where there is no such file or it is damaged (it is only
    a memory).
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, atomically: another process sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}.part")
    try:
        staging.write_text(
            json.dumps(encode(value), indent=1, sort_keys=True, ensure_ascii=False),
            encoding="utf-8",
        )
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)

"""Locks that are released when their process ends, however and wherever it ends.

A process id means nothing to another container or host that shares the home; a file lock works
across them (flock(2), which NFS forwards to its server).
"""

import errno
import fcntl
import os
import secrets
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from filelock import BaseFileLock

# Errors from filesystems without locks. No process can know that it is alone there, so nothing that
# belongs to others is removed.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})

# Whether a filesystem, by its device number, knows locks.
_KNOWS_LOCKS: dict[int, bool] = {}

_MADE_IF_MISSING = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class HeldLock:
    """A lock on a file, which is created if missing; held from construction until `release`.

    Without `release`, it ends when the object is garbage-collected.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._close = weakref.finalize(self, os.close, descriptor)
        self.path = path

    @classmethod
    def shared(cls, path: Path) -> Self:
        """Wait for a shared lock."""
        descriptor = os.open(path, _MADE_IF_MISSING)
        _lock(descriptor, fcntl.LOCK_SH)
        return cls(descriptor, path)

    @classmethod
    def awaited(cls, path: Path) -> Self:
        """Wait until nobody else holds a lock."""
        descriptor = os.open(path, _MADE_IF_MISSING)
        _lock(descriptor, fcntl.LOCK_EX)
        return cls(descriptor, path)

    @classmethod
    def of_new_file(cls, path: Path) -> Self | None:
        """Lock a newly created file; None if a concurrent sweep took it for abandoned."""
        descriptor = os.open(path, _MADE_IF_MISSING)
        taken = _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if taken is False or not path.exists():
            os.close(descriptor)
            return None
        return cls(descriptor, path)

    @classmethod
    def alone(cls, path: Path) -> Self | None:
        """Take an exclusive lock without waiting; None if another process holds it, if that cannot
        be determined, or if the file is gone.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # NFS requires write access
        except FileNotFoundError:
            return None
        if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) is not True:
            os.close(descriptor)
            return None
        return cls(descriptor, path)

    def release(self) -> None:
        """Release the lock."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def file_lock(path: Path, timeout: float = -1) -> "BaseFileLock":
    """Return a lock that one process holds at a time, in a folder that exists; acquiring it raises
    filelock.Timeout after `timeout` seconds. On a filesystem without locks, a file that exists
    while the lock is held replaces it: one that a killed process left is noticed on the same host
    only.
    """
    from filelock import FileLock, SoftFileLock  # noqa: PLC0415 - most commands lock nothing

    if _knows_locks(path.parent):
        return FileLock(path, timeout=timeout, thread_local=False)
    return SoftFileLock(path.with_name(f"{path.name}.soft"), timeout=timeout, thread_local=False)


def _knows_locks(folder: Path) -> bool:
    device = folder.stat().st_dev
    if device not in _KNOWS_LOCKS:
        probe = folder / f".{secrets.token_hex(8)}.probe"
        descriptor = os.open(probe, _MADE_IF_MISSING)
        try:
            _KNOWS_LOCKS[device] = _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) is not None
        finally:
            os.close(descriptor)
            probe.unlink()
    return _KNOWS_LOCKS[device]


def _lock(descriptor: int, kind: int) -> bool | None:
    """Return True if the lock was acquired; None if the filesystem does not support locks."""
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True

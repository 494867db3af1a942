"""Marks an environment as in use, and records when it was last used: a shared lock on its marker,
and the marker's mtime.

A process that gets an environment holds the lock until it ends. The kernel then releases it, so
nothing needs cleaning up, and no process id can be mistaken for another. Workers end with their
parent process, so its lock covers them. Removing an environment requires an exclusive lock, taken
without waiting.

A read-only marker can still be locked; its mtime then stays unchanged.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

# Open descriptors by marker, device and inode: a rebuilt environment has a new marker.
_held: dict[tuple[str, int, int], int] = {}
_guard = threading.Lock()

# Filesystems without locks, and markers owned by others, do not prevent using an environment.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
_NOT_OURS = frozenset({errno.EROFS, errno.EPERM, errno.EACCES})


def hold(marker: Path) -> bool:
    """Hold an environment until this process ends and record the time; False if it is gone or being
    removed.
    """
    try:
        descriptor = os.open(marker, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with _guard:
        status = os.fstat(descriptor)
        identity = (str(marker), status.st_dev, status.st_ino)
        if identity in _held:
            os.close(descriptor)
            _touch(_held[identity])
            return status.st_nlink > 0
        if (
            not _lock(descriptor, fcntl.LOCK_SH)
            or os.fstat(descriptor).st_nlink == 0
            or not marker.exists()
        ):
            os.close(descriptor)
            return False
        _held[identity] = descriptor
    _touch(descriptor)
    return True


def release(marker: Path) -> None:
    """Release one environment, which this process is about to rebuild."""
    with _guard:
        for identity in [identity for identity in _held if identity[0] == str(marker)]:
            os.close(_held.pop(identity))


@contextlib.contextmanager
def alone(marker: Path) -> Iterator[bool]:
    """Yield True, and block new users, if nobody uses the environment; otherwise False."""
    descriptor = os.open(marker, os.O_RDONLY)
    try:
        yield _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def in_use(marker: Path) -> bool:
    """Return True if any process, including this one, holds an environment."""
    with alone(marker) as free:
        return not free


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return kind == fcntl.LOCK_SH  # no process can know that it is alone here
    return True


def _touch(descriptor: int) -> None:
    try:
        os.utime(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise

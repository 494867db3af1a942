"""Says that an environment is in use, and when it last was: a shared lock on its marker, and the
marker's time.

Whoever is handed an environment holds the lock until the process ends; the kernel lets go of it
however that comes about, so that nothing has to be cleared away and no process number can be
mistaken for another's. Workers end with the process that started them, so its lock stands for
theirs. What removes an environment takes the lock for itself alone, without waiting.

A marker that can only be read is locked all the same; its time then stays as it was.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

# Open descriptors by marker, device and inode: an environment that was built anew has another
# marker.
_held: dict[tuple[str, int, int], int] = {}
_guard = threading.Lock()

# Filesystems that know no locks, and markers that others own, are no reason not to use an
# environment.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
_NOT_OURS = frozenset({errno.EROFS, errno.EPERM, errno.EACCES})


def hold(marker: Path) -> bool:
    """Hold an environment until this process ends and note the time; False where it is gone, or is
    being removed.
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
    """Let go of one environment, which this process is about to build again."""
    with _guard:
        for identity in [identity for identity in _held if identity[0] == str(marker)]:
            os.close(_held.pop(identity))


def release_all() -> None:
    """Let go of every environment that this process holds."""
    with _guard:
        while _held:
            os.close(_held.popitem()[1])


@contextlib.contextmanager
def alone(marker: Path) -> Iterator[bool]:
    """Give True while nobody uses the environment, and keep others from beginning to; False where
    somebody does.
    """
    descriptor = os.open(marker, os.O_RDONLY)
    try:
        yield _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def in_use(marker: Path) -> bool:
    """Say whether a process holds an environment, this one among them."""
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
        return kind == fcntl.LOCK_SH  # nobody can be sure to be alone here
    return True


def _touch(descriptor: int) -> None:
    try:
        os.utime(descriptor)
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise

"""Recognizes what convkit itself leaves among a model's files: the files that its standard output
goes to, and its home. They change from run to run, and say nothing about the model.
"""

import contextlib
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# A file's device and inode.
_Identity = tuple[int, int]
_DESCRIPTORS = (1, 2)
_PROCESSES = Path("/proc")


def is_own_output(path: str) -> bool:
    """Return whether convkit prints to a file, by itself (`> log.txt`) or through a process that
    reads what it prints (`| tee log.txt`).
    """
    outputs = output_files()
    if not outputs:
        return False
    try:
        status = os.stat(path)  # noqa: PTH116 - a run asks about thousands of files
    except OSError:
        return False
    return (status.st_dev, status.st_ino) in outputs


def is_home(path: str) -> bool:
    """Return whether a path is a home of convkit, which runs create and change."""
    store = Path(path, "store")
    return (store / "stages").is_dir() or (store / "digests").is_dir()


@functools.cache
def output_files() -> frozenset[_Identity]:
    """Return the files that this process prints to. Where the system does not show what other
    processes have open, those behind a pipe are missing.
    """
    found, pipes = set(), set()
    for descriptor in _DESCRIPTORS:
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            identity = status.st_dev, status.st_ino
            if stat.S_ISREG(status.st_mode):
                found.add(identity)
            elif stat.S_ISFIFO(status.st_mode):
                pipes.add(identity)
    for descriptors in _open_descriptors() if pipes else ():
        if any(_identity(each) in pipes for each in descriptors):
            found.update(_written(descriptors))
    return frozenset(found)


def _open_descriptors() -> Iterator[list[Path]]:
    """Yield the descriptors of every other process that this user may look into."""
    for process in _PROCESSES.glob("[0-9]*"):
        if process.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                yield list((process / "fd").iterdir())


def _identity(descriptor: Path) -> _Identity | None:
    with contextlib.suppress(OSError):
        status = descriptor.stat()
        return status.st_dev, status.st_ino
    return None


def _written(descriptors: list[Path]) -> Iterator[_Identity]:
    """Yield the files among a process's descriptors that it can only write: its input, and a
    database that it keeps, are not what it makes of what it reads.
    """
    for each in descriptors:
        with contextlib.suppress(OSError):
            status = each.stat()
            # The link's own mode says how the descriptor was opened (proc_pid_fd(5)).
            allowed = each.lstat().st_mode & (stat.S_IRUSR | stat.S_IWUSR)
            if stat.S_ISREG(status.st_mode) and allowed == stat.S_IWUSR:
                yield status.st_dev, status.st_ino

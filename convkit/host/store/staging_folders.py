"""Work in progress: folders that are removed once their owner is gone."""

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from convkit.host.store.process_locks import HeldLock
from convkit.protocol.errors import storage_error

_LOCK = ".lock"
# Earlier releases named folders after a process and held no lock: until it reaches this age, such a
# folder may be in use by one of them on another host.
_UNLOCKED_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def staging_folder(root: Path) -> Iterator[Path]:
    """Create a temporary folder below `root`, protected by a lock file next to it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        held = None
        while held is None:  # a sweep may remove a lock file that is not locked yet
            held = HeldLock.of_new_file(root / f"{secrets.token_hex(8)}{_LOCK}")
        folder = held.path.with_suffix("")
        folder.mkdir()
    except OSError as error:
        raise storage_error(error, root) from error
    with held:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            held.path.unlink(missing_ok=True)


def sweep_staging(root: Path) -> int:
    """Remove folders left by killed processes; return how many were removed.

    A folder is in use while its lock is held by any process, in any container or on any host. On
    filesystems without locks, nothing is removed.
    """
    swept = 0
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        lock = path if path.suffix == _LOCK else path.with_name(path.name + _LOCK)
        if lock.exists():
            held = HeldLock.alone(lock)
            if held is None:
                continue
            with held:
                swept += lock.with_suffix("").is_dir()
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
        elif path.is_dir() and _age(path) > _UNLOCKED_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
            swept += 1
    return swept


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # its owner has just removed it
        return 0.0

"""Work in progress: folders that are removed when whoever works in them is gone."""

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from convkit.errors import storage_error
from convkit.store.locks import HeldLock

_LOCK = ".lock"
# Earlier releases named folders after a process and held no lock: such a folder may be in use by
# one of them on another host until it is this old.
_UNLOCKED_SECONDS = 24 * 3600.0


@contextlib.contextmanager
def staging_folder(root: Path) -> Iterator[Path]:
    """Give an empty folder below `root`, held by a lock beside it; it is removed afterwards."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        held = None
        while held is None:  # whoever sweeps may take a lock file that is not locked yet
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
    """Remove what killed processes left; return how many folders went.

    A folder is in use while its lock is held, by a process in whatever container or on whatever
    host. On filesystems without locks nothing is removed.
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

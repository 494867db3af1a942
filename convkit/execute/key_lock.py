"""Ensures that only one run at a time works on a stage."""

import threading
from pathlib import Path

from filelock import FileLock, Timeout

from convkit.errors import Interrupted


class KeyLock:
    """Holds a stage key's lock file, so that two runs never work on the same key. Waiting can be
    canceled.
    """

    def __init__(self, path: Path, cancelled: threading.Event) -> None:
        self._lock = FileLock(path, thread_local=False)
        self._cancelled = cancelled
        path.parent.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> None:
        while True:
            try:
                self._lock.acquire(timeout=0.2)
            except Timeout:
                if self._cancelled.is_set():
                    raise Interrupted("interrupted") from None
            else:
                return

    def __exit__(self, *_: object) -> None:
        self._lock.release()

"""Ensures that only one run at a time works on a stage."""

import threading
from pathlib import Path

from filelock import Timeout

from convkit.host.store.process_locks import file_lock
from convkit.protocol.errors import Interrupted, storage_error


class KeyLock:
    """Holds a stage key's lock file: two runs never share a key. Waiting can be canceled."""

    def __init__(self, path: Path, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = file_lock(path)
        except OSError as error:
            raise storage_error(error, path) from error

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

"""What a process has read from files, and need not read again while they are unchanged.

A run that finds all its stages in the store asks for each record about ten times: for its key, its
result, its log, and what is to be said of it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from convkit.host.store.digests import FileStatus, file_status, seconds_to_settle

T = TypeVar("T")


class UnchangedFiles(Generic[T]):
    """Values that `parse` makes of files' contents. A value is used by everyone who asks, so it
    must not be changed.
    """

    def __init__(self, parse: Callable[[bytes], T]) -> None:
        self._parse = parse
        self._known: dict[Path, tuple[FileStatus, T]] = {}

    def read(self, path: Path) -> T:
        """Return a file's value; raises OSError, and what `parse` raises. A file that has just
        changed could change again with the same time stamp, and is not remembered.
        """
        now, status = time.time(), os.stat(path)  # noqa: PTH116 - like `tree_files`: no Path
        known = self._known.get(path)
        if known is not None and known[0] == file_status(status):
            return known[1]
        value = self._parse(path.read_bytes())
        if now > status.st_ctime + seconds_to_settle(status):
            self._known[path] = file_status(status), value
        return value

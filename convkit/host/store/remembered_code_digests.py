"""Remembers digests of code for as long as no file of its packages changes.

A run that is up to date asks for the digests of 17 sets of files, which takes longer than all else
that it reads. The status of every file tells at once whether any of them can differ.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from convkit.host.store.digests import (
    SealBroken,
    digest_json,
    file_status,
    read_sealed,
    seconds_to_settle,
    tree_files,
    write_sealed,
)


@dataclasses.dataclass(frozen=True)
class CodeMemory:
    """Digests by what they are of, valid while the status of all files has this digest."""

    status: str
    digests: dict[str, str]


class KnownCode:
    """Digests of the code in some packages' folders, remembered in a folder of files.

    A memory that is damaged, or cannot be written, costs time and nothing else.
    """

    def __init__(self, folder: Path, packages: tuple[Path, ...]) -> None:
        self._packages = packages
        name = hashlib.sha256(b"\0".join(os.fsencode(each) for each in packages)).hexdigest()
        self._file = folder / f"{name}.json"
        self._has_news = False

    def digest(self, name: str, compute: Callable[[], str]) -> str:
        """Return the digest called `name`, computed unless it is known."""
        known = self._digests.get(name)
        if known is None:
            known = self._digests[name] = compute()
            self._has_news = True
        return known

    def remember(self) -> None:
        """Write what was computed since. Digests of files that changed just now are left out: such
        a file could change again with the same time stamp.
        """
        if not self._has_news:
            return
        self._has_news = False
        status, is_settled = self._status
        if is_settled and self._read_status() == self._status:
            with contextlib.suppress(OSError):  # a full disk, or somebody else's folder
                write_sealed(self._file, CodeMemory(status, self._digests), durable=False)

    @functools.cached_property
    def _digests(self) -> dict[str, str]:
        try:
            memory = read_sealed(self._file, CodeMemory)
        except (OSError, SealBroken):
            return {}
        return memory.digests if memory.status == self._status[0] else {}

    @functools.cached_property
    def _status(self) -> tuple[str, bool]:
        return self._read_status()

    def _read_status(self) -> tuple[str, bool]:
        """Return the digest of every file's path and status, and whether all are long unchanged."""
        found = {
            path: os.stat(path)  # noqa: PTH116 - no Path: creating those takes half of the time
            for each in self._packages
            for path in tree_files(each)
        }
        now = time.time()
        is_settled = all(now > each.st_ctime + seconds_to_settle(each) for each in found.values())
        return digest_json({path: file_status(each) for path, each in found.items()}), is_settled

"""Prepares a stage's files for the store while the stage still runs.

A large file is often complete long before its stage ends: a build writes its weights, then opens
them. Its writer says so; the file is then digested, flushed to disk and copied in threads, beside
the rest of the stage. All of it counts only if the file's status is still the same in the end.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import secrets
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from convkit.host.store.digests import FileStatus, digest_file, file_status
from convkit.host.store.durable_files import copy_file, sync_file

T = TypeVar("T")

# A file is copied ahead if the disk has room for this many.
_ROOM = 3


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """What is known, or will be, of a file with this status."""

    status: FileStatus
    digest: "concurrent.futures.Future[str]"
    copy: "concurrent.futures.Future[Path]"


class Intake:
    """Prepares complete files of the folder `output`; copies go to the folder `copies`, which is
    created. With `lasting`, copies are flushed to disk as well, for a place that outlives the run.
    """

    def __init__(self, output: Path, copies: Path, *, lasting: bool) -> None:
        self._output, self._copies, self._lasting = output, copies, lasting
        self._prepared: dict[Path, _Prepared] = {}

    def complete(self, name: str) -> None:
        """Begin with a file, by its path below the output. Names that are no file there are
        ignored: they come from a process that runs tools.
        """
        path = self._output / name
        with contextlib.suppress(OSError, ValueError):
            status = path.lstat()
            inside = path.resolve(strict=True).is_relative_to(self._output.resolve())
            if not inside or not stat.S_ISREG(status.st_mode) or path in self._prepared:
                return
            self._copies.mkdir(exist_ok=True)
            self._prepared[path] = _Prepared(
                file_status(status),
                _in_background(lambda: digest_file(path)),
                _in_background(lambda: self._copied(path)),
            )
            # The flush of a linked file would write another stage's input to disk.
            if status.st_nlink == 1:
                _in_background(lambda: sync_file(path))

    def digest(self, path: Path) -> str | None:
        """Return a file's digest; None if it was not called complete, or has changed since."""
        prepared = self._unchanged(path)
        return None if prepared is None else _result(prepared.digest)

    def copies(self) -> dict[str, Path]:
        """Return copies of unchanged files by digest; each may be moved away."""
        found = {}
        for path in self._prepared:
            prepared = self._unchanged(path)
            if prepared is None:
                continue
            digest, copy = _result(prepared.digest), _result(prepared.copy)
            if digest is not None and copy is not None:
                found[digest] = copy
        return found

    def _unchanged(self, path: Path) -> _Prepared | None:
        prepared = self._prepared.get(path)
        try:
            changed = prepared is None or file_status(path.lstat()) != prepared.status
        except OSError:
            return None
        return None if changed else prepared

    def _copied(self, path: Path) -> Path:
        if shutil.disk_usage(self._copies).free < _ROOM * path.stat().st_size:
            raise OSError(errno.ENOSPC, "the stage itself may need the space", str(path))
        copy = self._copies / secrets.token_hex(8)
        copy_file(path, copy)
        if self._lasting:
            _in_background(lambda: sync_file(copy))
        return copy


def _in_background(work: Callable[[], T]) -> "concurrent.futures.Future[T]":
    """Do some work in a daemon thread: an executor's threads would be joined when the process
    ends, also after Ctrl-C.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again when the result is requested
            future.set_exception(error)

    threading.Thread(target=run, name="intake", daemon=True).start()
    return future


def _result(future: "concurrent.futures.Future[T]") -> T | None:
    """Wait for a result; None if a file could not be read or written."""
    try:
        return future.result()
    except OSError:
        return None

"""Passed to every stage function with its request: an output folder and a progress callback."""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy

# Digesting and copying a file of this size takes about a millisecond.
_LARGE_BYTES = 2**20


class StageSkippedError(Exception):
    """The machine lacks something the stage needs (a device, a library). The message names it and
    explains how to get it.
    """


class StageFailedError(Exception):
    """The stage failed for a reason the user can fix, such as a refused pickle. Shown without a
    traceback.

    `findings` explain the failure in more detail than the message, if possible.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class UnfitDataError(StageFailedError):
    """A data file that the recipe names cannot be used (E412); no tool is to blame.

    `key` is the recipe's key that names the file, `problem` what is wrong with it, naming the file,
    `fix` what to do; `tensor` is the input that the data is for, if there is one.
    """

    def __init__(self, key: str, problem: str, fix: str, *, tensor: str | None = None) -> None:
        message = f"{key}: {problem}"
        finding = Finding("E412", message, Place(tensor=tensor), {"key": key}, Remedy(fix))
        super().__init__(message, [finding])


@dataclasses.dataclass(frozen=True)
class Context:
    """`output` is an empty folder that becomes the stage's artifact."""

    output: Path
    events_fd: int | None = None

    def progress(self, message: str, *, done: float | None = None) -> None:
        """Report the current activity and, if known, the completed fraction (0 to 1)."""
        self._report({"time": time.time(), "message": message, "done": done})

    def complete(self, file: Path) -> None:
        """Report that a file of the output is complete: the host digests and copies it while the
        stage goes on. Small files are not worth it.
        """
        if file.stat().st_size >= _LARGE_BYTES:
            self._report({"complete": file.relative_to(self.output).as_posix()})

    def _report(self, event: dict[str, object]) -> None:
        if self.events_fd is None:
            return
        line = json.dumps(event) + "\n"
        try:
            os.write(self.events_fd, line.encode())
        except OSError:  # the host stopped listening; continue anyway
            return

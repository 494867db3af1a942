"""What a stage function is given besides its request: a folder to write to and a way to report
progress.
"""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from convkit.findings.model import Finding


class StageSkippedError(Exception):
    """This machine lacks something the stage needs (a device, a library); the message says what and
    how to get it.
    """


class StageFailedError(Exception):
    """The stage cannot be done for a reason the user can mend (a refused pickle); shown without
    traceback.

    `findings` say why, where more is known than the message.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


@dataclasses.dataclass(frozen=True)
class Context:
    """`output` is the empty folder that becomes the stage's artifact."""

    output: Path
    events_fd: int | None = None

    def progress(self, message: str, *, done: float | None = None) -> None:
        """Report what is being done now, and the share that is done (0 to 1) where it is known."""
        if self.events_fd is None:
            return
        line = json.dumps({"time": time.time(), "message": message, "done": done}) + "\n"
        try:
            os.write(self.events_fd, line.encode())
        except OSError:  # nobody listens any more; the work goes on
            return

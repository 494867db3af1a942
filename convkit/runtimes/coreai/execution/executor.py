"""Runs functions in a process of its own, which Core AI's runtime may end: where it meets sizes
that it did not expect, it stops the process instead of raising an error.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, ParamSpec, TypeVar, cast

from convkit.worker.process import bootstrap
from convkit.worker.runtime_interface.sessions import RunFailedError

P = ParamSpec("P")
T = TypeVar("T")

# The parent sends its own paths first: the process has the packages that the parent has. A worker's
# convkit is on none of them, and is exposed here as it is there.
_SERVE = """
import pickle, runpy, sys
sys.path[:], bootstrap, package = pickle.load(sys.stdin.buffer)
runpy.run_path(bootstrap)["expose"]("convkit", package)
from convkit.runtimes.coreai.execution.executor import serve
serve()
"""
_WAIT_SECONDS = 10.0
# What the runtime writes before it ends the process: `File.swift:59: Fatal error: why`.
_FATAL = "Fatal error"
_LAST_BYTES = 4_000


class CrashedError(RunFailedError):
    """The runtime ended its process; the message has its own words."""


class Executor:
    """A process that starts with the first call, and again with the first after a crash.

    `starts` counts the processes so far: what one of them held, the next does not (`holds`).
    """

    def __init__(self) -> None:
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: Callable[[], str | None] | None = None
        self._owner = 0
        self._lock = threading.RLock()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a module's function returns there; arguments and result are pickled.

        Raises CrashedError if it ends the process, and RunFailedError if it raises an error.
        """
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump((function, args, kwargs), process.stdin)
                process.stdin.flush()
                is_right, result = pickle.load(process.stdout)  # noqa: S301 - our own child's
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                raise self._crashed(process) from error
        if not is_right:
            raise RunFailedError(result)
        return cast("T", result)

    def holds(self, start: int) -> bool:
        """Say whether the process of a start still runs, with what it was called to load."""
        is_same = 0 < start == self.starts and self._owner == os.getpid()
        return is_same and self._process is not None

    def _started(self) -> subprocess.Popen[bytes]:
        # A process that was forked from this one must not share its pipes.
        if self._process is None or self._owner != os.getpid():
            printed = tempfile.TemporaryFile()  # noqa: SIM115 - read after a crash
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
            )
            self._owner = os.getpid()
            self.starts += 1
            self._ending = weakref.finalize(self, _end, self._process, printed, self._owner)
            assert self._process.stdin is not None
            package = Path(bootstrap.__file__).parents[2]
            pickle.dump((sys.path, bootstrap.__file__, package), self._process.stdin)
        return self._process

    def _crashed(self, process: subprocess.Popen[bytes]) -> CrashedError:
        self._process = None
        assert self._ending is not None
        said = self._ending() or ""
        code = process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return CrashedError(f"Core AI's runtime crashed ({how})" + (f": {said}" if said else ""))


EXECUTOR: Final = Executor()


def _end(process: subprocess.Popen[bytes], printed: IO[bytes], owner: int) -> str:
    """End a process of this one, which ends by itself when nothing can be sent to it any more;
    return the error that it has printed last.
    """
    if os.getpid() != owner:
        return ""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(_WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with printed:
        printed.seek(max(0, printed.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = printed.read().decode("utf-8", errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    # Without the runtime's own words, an exit code comes with Python's, of which the last is why.
    last = said[-1] if said and process.returncode > 0 else ""
    return next((line for line in reversed(said) if _FATAL in line), last)


def serve() -> None:
    """Call what the parent sends, until it closes the pipe; the process's output is kept apart."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, args, kwargs = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own parent's
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = True, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - every error of the runtime is an answer
            answer = False, str(error)
        pickle.dump(answer, answers)
        answers.flush()

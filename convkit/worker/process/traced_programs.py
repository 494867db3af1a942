"""Records the files that the programs and forked copies read which the user's code starts while a
model is loaded: programs by tracing them (`program_tracer`), copies of this process by what Python
reports in them. Both write to one log.

A program that cannot be traced runs as it would: one that gains privileges, any on another system.
"""

import contextlib
import functools
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from convkit.protocol.lookups.lookup_answers import lookup_name
from convkit.worker.process import program_tracer

_TRACER = [sys.executable, "-I", "-S", "-B", os.path.abspath(program_tracer.__file__)]  # noqa: PTH100 - a command
_GAIN_PRIVILEGES = stat.S_ISUID | stat.S_ISGID
_LOOKUPS = {"E": "exists", "K": "link", "L": "listing"}
# Not a file's kind but what a copy of this process found, already named.
_NAMED = "N"


class TracedPrograms:
    """Traces programs while it is active. One per process: wrappers stay."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        """`asked` returns whether the user's code starts what is about to start."""
        self.active = False
        self._asked = asked
        self._log: str | None = None
        self._own_line = False

    def install(self) -> None:
        """Wrap what starts programs."""
        if not sys.platform.startswith("linux"):
            return
        import _posixsubprocess

        inner = _posixsubprocess.fork_exec

        @functools.wraps(inner)
        def forked(
            arguments: Sequence[bytes],
            candidates: Sequence[bytes],
            close_fds: bool,  # noqa: FBT001 - Python's own function has no names
            pass_fds: tuple[int, ...],
            folder: Any,  # noqa: ANN401 - as above
            *rest: Any,  # noqa: ANN401 - as above
        ) -> int:
            program = self._program(candidates, folder)
            if program is not None and self.active and self._asked():
                words = [*_TRACER, self._log_path(), program]
                arguments = [*map(os.fsencode, words), *arguments]
                candidates = [os.fsencode(sys.executable)]
            return inner(arguments, candidates, close_fds, pass_fds, folder, *rest)

        vars(_posixsubprocess)["fork_exec"] = forked
        if hasattr(subprocess, "_fork_exec"):
            vars(subprocess)["_fork_exec"] = forked
        self._wrap_system()

    def _wrap_system(self) -> None:
        inner = os.system

        @functools.wraps(inner)
        def ran(command: str | bytes | os.PathLike[str]) -> int:
            if not (self.active and self._asked()):
                return inner(command)
            sys.audit("os.system", os.fsencode(command))
            words = [*_TRACER, self._log_path(), "/bin/sh", "sh", "-c", os.fsdecode(command)]
            self._own_line = True
            try:
                return inner(f"exec {shlex.join(words)}")
            finally:
                self._own_line = False

        vars(os)["system"] = ran

    def is_own(self, event: str) -> bool:
        """Return whether an audit event is of the line that starts the tracer."""
        return event == "os.system" and self._own_line

    def _program(self, candidates: Sequence[bytes], folder: str | bytes | None) -> str | None:
        """Return the file that would run: a program, or a script that names one."""
        top = os.fsdecode(folder) if folder is not None else "."
        for each in candidates:
            path = os.path.join(top, os.fsdecode(each))  # noqa: PTH118 - as execve() would
            with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - as above
                mode = os.fstat(file.fileno()).st_mode
                if mode & stat.S_IXUSR and not mode & _GAIN_PRIVILEGES:
                    known = file.read(4) == b"\x7fELF" or _has_interpreter(path)
                    return os.fsdecode(each) if known else None
        return None

    def _log_path(self) -> str:
        if self._log is None:
            descriptor, self._log = tempfile.mkstemp(prefix="convkit-programs-")
            os.close(descriptor)
        return self._log

    def prepare_copies(self, sets: Callable[[type[set[str]]], None]) -> None:
        """Have copies of this process report what is added to its sets, which `sets` replaces."""
        log = self._log_path

        class Reported(set[str]):
            def add(self, name: str) -> None:
                if name not in self:
                    super().add(name)
                    with open(log(), "ab", buffering=0) as file:  # noqa: PTH123 - one write
                        file.write(_NAMED.encode() + os.fsencode(name) + b"\0")

            def update(self, *others: Iterable[str]) -> None:
                for other in others:
                    for name in other:
                        self.add(name)

        def copied() -> None:
            if self.active:
                self.active = False  # what a copy starts is its own
                sets(Reported)

        def before() -> None:
            if self.active:
                self._log_path()

        os.register_at_fork(before=before, after_in_child=copied)

    def take(self) -> Iterator[tuple[str, str]]:
        """Yield what was recorded, as kinds (R, U, W) and paths, U's with its state before, and as
        N and the names of lookups; forget it.
        """
        if self._log is None:
            return
        with open(self._log, "rb") as file:  # noqa: PTH123 - a path as text
            records = file.read().split(b"\0")
        os.unlink(self._log)  # noqa: PTH108 - as above
        self._log = None
        searched = {os.path.abspath(folder) for folder in os.get_exec_path()}  # noqa: PTH100 - as above
        for record in records:
            kind, name = chr(record[0]) if record else "", os.fsdecode(record[1:])
            if kind in _LOOKUPS:
                # Where a shell looks for programs differs between machines.
                if kind != "E" or os.path.dirname(name) not in searched:  # noqa: PTH120 - as above
                    yield _NAMED, lookup_name(_LOOKUPS[kind], name)  # type: ignore[arg-type]
            elif kind:
                yield kind, name


def _has_interpreter(path: str) -> bool:
    with open(path, "rb") as file:  # noqa: PTH123 - a path as text
        line = file.readline(256)
    words = line[2:].split()
    return line.startswith(b"#!") and bool(words) and os.access(words[0], os.X_OK)

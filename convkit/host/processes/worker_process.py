"""Runs one worker process: starts it in its own session, forwards its events, and ends it along
with everything it started.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Self

from convkit.host.processes.out_of_memory import memory_kills
from convkit.host.processes.worker_outcome import Ending, WorkerOutcome, findings_of, read_log
from convkit.host.processes.worker_start import Launch, WorkerProcess, WorkerStrategy
from convkit.host.secret_redaction import redacted
from convkit.protocol.environment_seal import FILE_NAME as SEAL
from convkit.protocol.json_codec import CodecError, Json, decode, encode, parse_json
from convkit.protocol.messages import PROTOCOL, Answer, Envelope
from convkit.protocol.passed_variables import passed_on
from convkit.protocol.process_trees import (
    STAGE_VARIABLE,
    LiveProcess,
    descendants,
    end_all,
    started_by,
)
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.silenced_telemetry import SILENCED

__all__ = ["Ending", "WorkerOutcome", "findings_of", "run_worker", "worker_environment"]

OnEvent = Callable[[str, float | None], None]
OnComplete = Callable[[str], None]

_POLL_SECONDS = 0.1
# Time for a worker to exit between SIGTERM and SIGKILL: Ctrl-C must end a run within two seconds.
_GRACE_SECONDS = 1.0
# Time for a worker to exit after writing its answer: a tool's own threads can keep it alive
# forever.
_LINGER_SECONDS = 10.0
# Clocks that are only slewed stay within this of the monotonic clock, in the time of a stage.
_SET_BACK_SECONDS = 1.0
_LONGEST_EVENT_BYTES = 64 * 1024
# POSIX's own form, which needs no table of time zones.
UTC = "UTC0"
# The parts of an answer that contain a tool's own text.
_TEXTS = ("error", "traceback", "findings")


def run_worker(
    python: Path,
    envelope: Envelope,
    folder: Path,
    *,
    workers: WorkerStrategy,
    timeout_seconds: float,
    on_event: OnEvent,
    cancelled: threading.Event,
    on_complete: OnComplete = lambda _: None,
    environment: Mapping[str, str] | None = None,
    hash_seed: int = 0,
    timezone: str = UTC,
) -> WorkerOutcome:
    """Run one job in its own process, started by `workers`, and wait for it; `on_event` receives
    messages and the completed fraction (0 to 1), `on_complete` the path below the output of each
    file that the worker calls complete.

    `folder` contains `request.json`, `result.json` and `log` (the output), and is the worker's
    current folder. The worker is ended at the timeout or when `cancelled` is set; all its child
    processes end with it in any case. `environment` (default: ours) is reduced by
    `worker_environment`. Raises WorkerError if no process can be started; nothing that happens to
    the process afterwards raises.
    """
    request, result, log = folder / "request.json", folder / "result.json", folder / "log"
    given = os.environ if environment is None else environment
    seen = worker_environment(given, python, envelope.threads, hash_seed, timezone)
    reading, writing = os.pipe()
    kills_before = memory_kills()
    stage = secrets.token_hex(8)
    started, began = time.time(), time.monotonic()
    deadline = began + timeout_seconds
    try:
        try:
            envelope = dataclasses.replace(envelope, events_fd=writing, parent_pid=os.getpid())
            request.write_text(json.dumps(encode(envelope)), encoding="utf-8")
            seen |= _without_stray_bytecode(python, folder) | {STAGE_VARIABLE: stage}
            process = workers.start(
                Launch(python, envelope, request, result, folder, log, writing, seen, deadline)
            )
        finally:
            os.close(writing)
        with _Family(process, stage) as family:
            stopped = _attend(
                family, _Events(reading, on_event, on_complete), result, deadline, cancelled
            )
    finally:
        os.close(reading)
    started = _on_current_clock(started, began)
    return _outcome(process.wait(), stopped, result, log, started, kills_before)


def _on_current_clock(started: float, began: float) -> float:
    """Return a start, in seconds since 1970, as today's clock has it where that was set back.

    A file's change time shows whether it changed since: with the old start, a change under the
    new clock would seem to be an old one. `began` is the start by the monotonic clock.
    """
    now_says = time.time() - (time.monotonic() - began)
    return now_says if now_says < started - _SET_BACK_SECONDS else started


def worker_environment(
    given: Mapping[str, str],
    python: Path,
    threads: int | None,
    hash_seed: int = 0,
    timezone: str = UTC,
) -> dict[str, str]:
    """Return a worker's environment variables: few of the user's, none of the host's Python, no
    telemetry.

    `threads` limits the tools' compute threads; None leaves the choice to them. Language and time
    zone are the same for everyone: C reads them without a trace.
    """
    passed = passed_on(given)
    if threads is not None:
        passed["OMP_NUM_THREADS"] = str(threads)
    return {
        **passed,
        "PATH": os.pathsep.join([str(python.parent), given.get("PATH", os.defpath)]),
        "PYTHONHASHSEED": str(hash_seed),
        "TZ": timezone,
        "LC_ALL": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",  # for Pythons started by the worker
        "PYTHONUTF8": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        **{name: value for row in runtimes().values() for name, value in row.variables.items()},
        SILENCED: ",".join(module for row in runtimes().values() for module in row.silenced),
    }


def _without_stray_bytecode(python: Path, folder: Path) -> dict[str, str]:
    """Return the variables that keep Python from reading an environment's `.pyc` files, which may
    contain arbitrary code.

    The worker itself uses separate bytecode (`convkit.protocol.sealed_imports`). Environments that
    convkit did not build are left alone.
    """
    if not (python.parent.parent / SEAL).is_file():
        return {}
    return {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), "PYTHONDONTWRITEBYTECODE": "1"}


class _Events:
    """The reading end of a worker's events: JSON lines, forwarded as they arrive."""

    def __init__(self, descriptor: int, on_event: OnEvent, on_complete: OnComplete) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._on_event, self._on_complete = on_event, on_complete
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(descriptor, selectors.EVENT_READ)
        self.open = True

    def wait(self, seconds: float) -> None:
        """Forward events; return after something arrived, or after `seconds`, or at once if all
        events have arrived.
        """
        if self.open and self._selector.select(seconds):
            self.drain()

    def drain(self) -> None:
        """Forward the events that have already arrived."""
        while self.open:
            try:
                block = os.read(self._descriptor, _LONGEST_EVENT_BYTES)
            except BlockingIOError:
                return
            self.open = bool(block)
            *lines, self._rest = (self._rest + block).split(b"\n")
            self._rest = self._rest[-_LONGEST_EVENT_BYTES:]
            for line in lines:
                self._pass_on(line)

    def close(self) -> None:
        """Close the selector."""
        self._selector.close()

    def _pass_on(self, line: bytes) -> None:
        try:
            event = parse_json(line)
        except ValueError:
            return  # two of a tool's threads wrote at once: only an event is lost
        if not isinstance(event, dict):
            return
        message, done, complete = event.get("message"), event.get("done"), event.get("complete")
        if isinstance(complete, str):
            self._on_complete(complete)
        if isinstance(message, str):
            self._on_event(
                redacted(message), float(done) if isinstance(done, int | float) else None
            )


def _attend(
    family: "_Family", events: _Events, result: Path, deadline: float, cancelled: threading.Event
) -> Literal["timed_out", "cancelled"] | None:
    """Forward events until the worker ends; return why it was stopped, or None."""
    process = family.process
    done_since: float | None = None
    try:
        while True:
            # When a worker ends, its end of the pipe closes, so this returns at once.
            events.wait(_POLL_SECONDS)
            if not events.open:
                _wait(process, _POLL_SECONDS)
            if process.poll() is not None:
                events.drain()
                return None
            now = time.monotonic()
            if done_since is None and result.exists():
                done_since = now
            if cancelled.is_set():
                family.stop()
                return "cancelled"
            if done_since is not None and now > done_since + _LINGER_SECONDS:
                family.stop()
                return None
            if now > deadline:
                family.stop()
                return "timed_out"
    finally:
        events.close()


def _wait(process: WorkerProcess, seconds: float) -> bool:
    """Return whether a process has ended, waiting for it up to `seconds`."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class _Family:
    """A worker and every process that it started, also those that left its session. Ends them
    however the block exits.
    """

    def __init__(self, process: WorkerProcess, stage: str) -> None:
        self.process, self._stage = process, stage
        self._seen: set[LiveProcess] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()
        end_all(lambda: self._seen | started_by(self._stage))

    def stop(self) -> None:
        """Ask all of them to exit; kill them after a while."""
        self._signal(signal.SIGTERM)
        if not _wait(self.process, _GRACE_SECONDS):
            self._signal(signal.SIGKILL)
            self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self._seen |= descendants(self.process.pid)  # while it is their ancestor
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The worker leads its session, so its process id is also its group's. (The group may
            # be empty; macOS reports EPERM for a group of zombies.)
            os.killpg(self.process.pid, number)
        for each in self._seen:
            each.send(number)


def _outcome(
    returncode: int,
    stopped: Ending | None,
    result: Path,
    log: Path,
    started: float,
    kills_before: int | None,
) -> WorkerOutcome:
    """Determine how a worker ended from its exit status and its files."""
    answer, detail = _read_answer(result)
    ended_by = -returncode if returncode < 0 else None
    ending: Ending
    if stopped == "cancelled":
        ending, answer = stopped, None
    elif answer is not None:
        # The answer is complete and written last, so a crash while a tool's library unloads loses
        # nothing.
        ending = "answered"
    elif stopped is not None:
        ending = stopped
    elif ended_by == signal.SIGKILL:
        ending, detail = "out_of_memory", _killed(kills_before)
    elif ended_by is not None:
        ending = "signalled"
    else:
        ending, detail = "no_answer", f"exit code {returncode}, {detail}"
    exit_code = returncode if returncode >= 0 else None
    return WorkerOutcome(
        ending, answer, read_log(log), started, time.time(), ended_by, exit_code, detail
    )


def _read_answer(path: Path) -> tuple[Answer | None, str]:
    """Return a worker's answer, or None and the problem with it."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            # Not `result`: names and contracts are data and must stay unchanged.
            content |= {name: _redacted(content.get(name)) for name in _TEXTS if name in content}
        answer = decode(Answer, content)
    except FileNotFoundError:
        return None, "no result file"
    except (OSError, ValueError, CodecError) as error:
        return None, f"an unreadable result file: {error}"
    if answer.protocol != PROTOCOL:
        return None, f"a result in protocol {answer.protocol}; this convkit uses {PROTOCOL}"
    return answer, ""


def _redacted(value: Json) -> Json:
    """Return a JSON value with secrets removed from a tool's texts."""
    match value:
        case str():
            return redacted(value)
        case list():
            return [_redacted(each) for each in value]
        case dict():
            return {name: _redacted(each) for name, each in value.items()}
        case _:
            return value


def _killed(kills_before: int | None) -> str:
    """Return how certain it is that a SIGKILL from outside was due to memory."""
    kills = memory_kills()
    if kills is None or kills_before is None:
        return "killed by the system, most likely out of memory"
    if kills > kills_before:
        return "killed by the system: out of memory"
    return (
        "killed (SIGKILL), but not by the kernel for lack of memory: by a memory guard, a "
        "scheduler or a person"
    )

"""A benchmark session: a long-lived worker per model, in its own process and environment, whose
calls are timed in turn over a socket.
"""

import contextlib
import dataclasses
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import IO

from convkit.host.processes.worker_outcome import WorkerOutcome
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WorkerStrategy
from convkit.protocol.errors import WorkerError
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import BenchResult, Envelope, Hello, Timing, TimingOrder

_POLL_SECONDS = 0.05
# The longest path of a Unix socket is 107 bytes on Linux, 103 on macOS.
_LONGEST_ADDRESS = 100


class NotMeasuredError(Exception):
    """A model cannot be measured; the message is for the user."""


@dataclasses.dataclass
class TimedModel:
    """A model in the session: its worker has loaded it, and waits for orders."""

    name: str
    hello: Hello
    output: Path
    _outcome: "Future[WorkerOutcome]"
    _connection: socket.socket
    _stream: IO[str]

    def time(self, size: str, calls: int) -> Timing:
        """Have the model called; raises NotMeasuredError if its worker is gone."""
        return self._ask(TimingOrder(size, calls))

    def end(self) -> BenchResult:
        """End this model's part; return the rest of what its worker knows."""
        with contextlib.suppress(OSError):
            self._send(TimingOrder(None))
        return _result_of(self._outcome)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._connection.close()

    def _ask(self, order: TimingOrder) -> Timing:
        try:
            self._send(order)
            line = self._stream.readline()
        except OSError:
            line = ""
        if not line:
            _result_of(self._outcome)  # raises what the worker ended with
            raise NotMeasuredError("its worker ended in the middle of the benchmark")
        return decode(Timing, json.loads(line))

    def _send(self, order: TimingOrder) -> None:
        self._connection.sendall((json.dumps(encode(order)) + "\n").encode())


class BenchSession:
    """The workers of a benchmark. `address` is what their requests name."""

    def __init__(self, listening: socket.socket, address: str, timeout_seconds: float) -> None:
        self._listening = listening
        self.address = address
        self._timeout = timeout_seconds
        self._cancelled = threading.Event()
        self._members: list[TimedModel] = []
        self._threads: list[threading.Thread] = []

    def join(
        self,
        name: str,
        python: Path,
        envelope: Envelope,
        workers: WorkerStrategy,
        progress: Callable[[str], None],
    ) -> TimedModel:
        """Start a model's worker and wait until it has loaded the model, alone on the machine.

        `envelope.output` is an empty folder in the worker's own. Raises NotMeasuredError if the
        model cannot be loaded or called, WorkerError if no process can be started.
        """
        folder = Path(envelope.output).parent
        outcome: Future[WorkerOutcome] = Future()

        def work() -> None:
            try:
                outcome.set_result(
                    run_worker(
                        python,
                        envelope,
                        folder,
                        workers=workers,
                        timeout_seconds=self._timeout,
                        on_event=lambda message, _: progress(f"{name}: {message}"),
                        cancelled=self._cancelled,
                    )
                )
            except BaseException as error:  # noqa: BLE001 - raised where the outcome is asked for
                outcome.set_exception(error)

        thread = threading.Thread(target=work, name=f"bench {name}", daemon=True)
        thread.start()
        self._threads.append(thread)
        connection = self._accepted(outcome)
        stream = connection.makefile("r", encoding="utf-8")
        try:
            hello = decode(Hello, json.loads(stream.readline()))
        except (OSError, ValueError, CodecError) as error:
            _result_of(outcome)
            raise NotMeasuredError(f"its worker sent an unexpected message: {error}") from error
        member = TimedModel(name, hello, Path(envelope.output), outcome, connection, stream)
        self._members.append(member)
        return member

    def _accepted(self, outcome: "Future[WorkerOutcome]") -> socket.socket:
        while not outcome.done():
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            connection.settimeout(None)
            return connection
        _result_of(outcome)
        raise NotMeasuredError("its worker ended without an answer")

    def close(self) -> None:
        """End every worker that is left."""
        self._cancelled.set()
        for thread in self._threads:
            thread.join()
        for member in self._members:
            member.close()


@contextlib.contextmanager
def bench_session(timeout_seconds: float) -> Iterator[BenchSession]:
    """Open a session; no worker outlives the block."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="convkit-", dir=_short()))
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        address = str(Path(folder) / "bench")
        listening.bind(address)
        listening.listen(1)
        listening.settimeout(_POLL_SECONDS)
        session = BenchSession(listening, address, timeout_seconds)
        stack.callback(session.close)
        yield session


def _short() -> str | None:
    """Return a folder for the socket if the usual one has too long a path; None for that one."""
    room = _LONGEST_ADDRESS - len("/convkit-12345678/bench")
    return "/tmp" if len(tempfile.gettempdir()) > room else None  # noqa: S108 - a folder of our own is made in it


def _result_of(outcome: "Future[WorkerOutcome]") -> BenchResult:
    """Return a worker's result; raises NotMeasuredError with the reason if it has none."""
    ended = outcome.result()
    answer = ended.answer
    if answer is None:
        raise NotMeasuredError(ended.detail or ended.ending.replace("_", " "))
    if answer.outcome != "done":
        raise NotMeasuredError(answer.error or answer.outcome)
    try:
        return decode(BenchResult, answer.result)
    except CodecError as error:
        raise WorkerError(f"a benchmark's worker sent an unreadable answer: {error}") from error

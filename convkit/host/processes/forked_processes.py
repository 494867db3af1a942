"""A fork server and the processes that it forks, as the process that asks for them sees them."""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from convkit.host.processes.worker_start import BOOTSTRAP, Launch, WorkerProcess, command
from convkit.protocol.jobs.fork_orders import PER_WORKER, READY, REST, ForkOrder, LoadOrder
from convkit.protocol.jobs.resident_orders import ResidentOrder
from convkit.protocol.json_codec import Json, encode

IMPORT_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 5.0
_LONGEST_REPORT = 64 * 1024
LIMITS = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)
# Reading the umask requires setting it, for the whole process.
_UMASK = threading.Lock()


class ServerRefusedError(Exception):
    """A server has imported its tools, and must not fork: the message says why."""


class Server:
    """One running server and its workers. A loader is a server, and a worker of its own server."""

    def __init__(self, process: WorkerProcess, orders: socket.socket) -> None:
        self._process, self._orders = process, orders
        self._workers: list[ForkedProcess] = []

    @classmethod
    def start(
        cls,
        python: Path,
        environment: Sequence[tuple[str, str]],
        tools: Sequence[str],
        closed: threading.Event,
    ) -> "Server | None":
        """Start a server and wait until it can fork; None if it must not, or once `closed` is
        set.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, tempfile.TemporaryFile() as printed:
            try:
                process = subprocess.Popen(
                    command(python, BOOTSTRAP, "--fork-server", str(theirs.fileno()), *tools),
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                return None  # a fresh process will report the problem
        server = cls(process, ours)
        return server if server.ready(closed, time.monotonic() + IMPORT_SECONDS) else None

    @classmethod
    def of_resident(
        cls, connection: socket.socket, closed: threading.Event, deadline: float
    ) -> "tuple[Server | None, bytes]":
        """Return the server that a resident forks for a new connection; if there is none, what the
        resident says instead, which is nothing if it is gone. Waits while it imports its tools.
        """
        status, reported = os.pipe()
        order = ResidentOrder("serve", _umask(), limits())
        try:
            socket.send_fds(connection, [json.dumps(encode(order)).encode()], [reported])
        except OSError:
            os.close(status)
            connection.close()
            return None, b""
        finally:
            os.close(reported)
        answer = _reported(connection, closed, deadline)
        if answer != READY:
            os.close(status)
            connection.close()
            return None, answer
        if (process := ForkedProcess.await_start(status)) is None:
            connection.close()
            return None, b""
        connection.settimeout(IMPORT_SECONDS)
        return cls(process, connection), READY

    def ready(self, closed: threading.Event, deadline: float) -> bool:
        """Wait until the server has imported its tools, or loaded; return whether it can fork. If
        not, it is closed.
        """
        if _reported(self._orders, closed, deadline) == READY:
            self._orders.settimeout(IMPORT_SECONDS)
            return True
        self._kill()  # while it imports, it does not see that its orders end
        self.close()
        return False

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def idle(self) -> bool:
        """True if none of its workers is running."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        return not self._workers

    def fork(self, launch: Launch) -> "ForkedProcess | None":
        """Fork a worker; None if the server is gone or can no longer fork."""
        order = ForkOrder(
            request=str(launch.request),
            result=str(launch.result),
            folder=str(launch.folder),
            environment={n: v for n, v in launch.environment.items() if n in PER_WORKER},
            umask=_umask(),
            limits=limits(),
        )
        try:
            with launch.log.open("wb") as log:
                return self._forked(order, log.fileno(), launch.events)
        except OSError:
            return None

    def fork_loader(self, function: str, argument: Json, folder: Path) -> "Server | None":
        """Fork a server that calls `function` (`module:name`) with `argument`, starting in
        `folder`; await that it is `ready`. None if this server is gone or can no longer fork.
        """
        order = LoadOrder(function, argument, str(folder), _umask(), limits())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = self._forked(order, theirs.fileno())
        if process is not None:
            return Server(process, ours)
        ours.close()
        return None

    def _forked(self, order: ForkOrder | LoadOrder, *descriptors: int) -> "ForkedProcess | None":
        """Send an order with its descriptors; return the process, None if there is none."""
        status, reported = os.pipe()
        try:
            message = json.dumps(encode(order)).encode()
            socket.send_fds(self._orders, [message], [*descriptors, reported])
        except OSError:
            os.close(status)
            return None
        finally:
            os.close(reported)
        worker = ForkedProcess.await_start(status)
        if worker is not None:
            self._workers.append(worker)
        return worker

    def rest(self) -> None:
        """Let the server free its memory: it only looks after its workers from now on."""
        with contextlib.suppress(OSError):  # it is gone, and its workers with it
            self._orders.send(REST)

    def close(self) -> None:
        """Close the server, which kills its remaining workers."""
        self._orders.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()


def _reported(orders: socket.socket, closed: threading.Event, deadline: float) -> bytes:
    """Return what a server reports; nothing if it ends, or if the time is up."""
    orders.settimeout(_LOOK_SECONDS)
    while not closed.is_set() and time.monotonic() < deadline:
        try:
            return orders.recv(_LONGEST_REPORT)
        except TimeoutError:
            continue
        except OSError:
            break
    return b""


class ForkedProcess:
    """A worker forked by a server, which reports its pid in one line and its exit code in the
    next.
    """

    def __init__(self, pid: int, status: int, rest: bytes) -> None:
        self.pid = pid
        self._status, self._rest = status, rest
        self._returncode: int | None = None
        # Called once, by the thread that first sees the end.
        self.when_ended: Callable[[], None] = lambda: None
        self._lock = threading.Lock()  # accessed by its own thread and the next worker's

    @classmethod
    def await_start(cls, status: int) -> "ForkedProcess | None":
        """Return the worker once it leads its session; None if the server cannot fork."""
        received = b""
        while b"\n" not in received:
            block = os.read(status, 64)
            if not block:
                os.close(status)
                return None
            received += block
        pid, _, rest = received.partition(b"\n")
        return cls(int(pid), status, rest)

    def poll(self) -> int | None:
        """Return the exit code; None while the worker runs."""
        if not self._lock.acquire(blocking=False):
            return None  # another thread is waiting for it, and will see it end
        try:
            return self._read_within(0)
        finally:
            self._lock.release()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raises subprocess.TimeoutExpired after `timeout` seconds."""
        with self._lock:
            code = self._read_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
        return code

    def _read_within(self, seconds: float | None) -> int | None:
        if self._returncode is None:
            while b"\n" not in self._rest:
                if not select.select([self._status], [], [], seconds)[0]:
                    return None
                block = os.read(self._status, 64)
                if not block:  # the server is gone, so its workers kill themselves
                    self._rest += f"{-signal.SIGKILL}\n".encode()
                self._rest += block
            self._returncode = int(self._rest)
            os.close(self._status)
            self.when_ended()
        return self._returncode


def limits() -> tuple[tuple[int, int, int], ...]:
    """Return our resource limits: number, soft and hard."""
    return tuple((number, *resource.getrlimit(number)) for number in LIMITS)


def _umask() -> int:
    with _UMASK:
        umask = os.umask(0o077)
        os.umask(umask)
    return umask

"""Starts workers by forking a process that has already imported their tools.

Importing torch and transformers costs a worker 3 s, coremltools 8 s, a fork a hundredth of a
second. A server keeps the modules it has imported: start new ones after packages or convkit's own
code have changed.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from convkit.codec import encode
from convkit.execute.workers import (
    BOOTSTRAP,
    FreshProcesses,
    Launch,
    WorkerProcess,
    WorkerStrategy,
    command,
)
from convkit.worker.fork_server import PER_WORKER, READY, THREADS, ForkOrder
from convkit.worker.preloading import preloaded_tools
from convkit.worker.protocol import Envelope

_Key = tuple[Path, tuple[tuple[str, str], ...], tuple[str, ...]]

_IMPORT_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 5.0
_LIMITS = tuple(
    getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")
)
# Reading the umask requires setting it, for the whole process.
_UMASK = threading.Lock()


@contextlib.contextmanager
def forking(workers: WorkerStrategy) -> Iterator[WorkerStrategy]:
    """Provide a strategy for one run: its stages share what they import.

    Strategies other than plain fresh processes have their own way to start workers, and stay.
    """
    if workers != FreshProcesses():
        yield workers
        return
    with contextlib.closing(ForkServers()) as servers:
        yield servers


class ForkServers:
    """A strategy with one server per interpreter, environment and set of tools.

    Workers without costly imports are fresh processes, and so are those whose server must not fork
    (an import failed or started threads; any system but Linux). At most `most` idle servers are
    kept, the most recently used ones.

    `tools` says what a worker's server imports ahead. With more than what its stage always imports,
    workers start sooner, but report versions of packages that they did not use.
    """

    def __init__(
        self, most: int = 4, tools: Callable[[Envelope], tuple[str, ...]] = preloaded_tools
    ) -> None:
        self._most, self._tools = most, tools
        self._fresh = FreshProcesses()
        self._slots: dict[_Key, _Slot] = {}  # most recently used last
        self._lock = threading.Lock()  # never held while a server imports or ends
        self._closed = threading.Event()

    def start(self, launch: Launch) -> WorkerProcess:
        """Fork a worker, or start a fresh one if that is impossible."""
        tools = self._tools(launch.envelope)
        if not tools or sys.platform != "linux":
            return self._fresh.start(launch)
        with self._slot((launch.python, _shared(launch.environment), tools)) as slot:
            worker = slot.fork(launch, self._closed)
        return worker or self._fresh.start(launch)

    def close(self) -> None:
        """Close all servers, which kills their workers; those that are still importing at once."""
        self._closed.set()
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            slot.close()

    @contextlib.contextmanager
    def _slot(self, key: _Key) -> Iterator["_Slot"]:
        """Provide a server's slot, which is not emptied meanwhile."""
        with self._lock:
            spare = [] if key in self._slots else self._spare()
            self._slots[key] = slot = self._slots.pop(key, None) or _Slot(key)
            slot.users += 1
        try:
            for each in spare:
                each.close()
            yield slot
        finally:
            with self._lock:
                slot.users -= 1

    def _spare(self) -> list["_Slot"]:
        """Take out the idle slots that must make room for another one."""
        idle = [key for key, slot in self._slots.items() if slot.idle]
        return [self._slots.pop(key) for key in idle[: max(0, len(self._slots) + 1 - self._most)]]


class _Slot:
    """Holds one server, which starts with its first worker. `users` are the threads that are asking
    for a worker.
    """

    def __init__(self, key: _Key) -> None:
        self.users = 0
        self._key = key
        self._server: _Server | None = None
        self._must_not_fork = False
        self._lock = threading.Lock()

    @property
    def idle(self) -> bool:
        """True if there is a server that nobody is using."""
        return self.users == 0 and self._server is not None and self._server.idle

    def fork(self, launch: Launch, closed: threading.Event) -> "_ForkedProcess | None":
        """Fork a worker, as soon as the server has started; None if that is impossible."""
        with self._lock:
            if self._server is None and not self._must_not_fork:
                self._server = _Server.start(*self._key, closed)
                self._must_not_fork = self._server is None
            if self._server is None:
                return None
            if (worker := self._server.fork(launch)) is None:
                self._empty()  # it is gone, or out of memory: the next worker gets a new one
            return worker

    def close(self) -> None:
        """Close the server."""
        with self._lock:
            self._empty()

    def _empty(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _Server:
    """One running server and its workers."""

    def __init__(self, process: "subprocess.Popen[bytes]", orders: socket.socket) -> None:
        self._process, self._orders = process, orders
        self._workers: list[_ForkedProcess] = []

    @classmethod
    def start(
        cls,
        python: Path,
        environment: Sequence[tuple[str, str]],
        tools: Sequence[str],
        closed: threading.Event,
    ) -> "_Server | None":
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
        if server._ready(closed):
            ours.settimeout(_IMPORT_SECONDS)
            return server
        process.kill()  # while it imports, it does not see that its orders end
        server.close()
        return None

    def _ready(self, closed: threading.Event) -> bool:
        """Wait until the server has imported its tools; return whether it can fork."""
        self._orders.settimeout(_LOOK_SECONDS)
        deadline = time.monotonic() + _IMPORT_SECONDS
        while not closed.is_set() and time.monotonic() < deadline:
            try:
                return self._orders.recv(4096) == READY
            except TimeoutError:
                continue
            except OSError:
                return False
        return False

    @property
    def idle(self) -> bool:
        """True if none of its workers is running."""
        self._workers = [worker for worker in self._workers if worker.poll() is None]
        return not self._workers

    def fork(self, launch: Launch) -> "_ForkedProcess | None":
        """Fork a worker; None if the server is gone or can no longer fork."""
        order = ForkOrder(
            request=str(launch.request),
            result=str(launch.result),
            folder=str(launch.folder),
            environment={n: v for n, v in launch.environment.items() if n in PER_WORKER},
            umask=_umask(),
            limits=tuple((number, *resource.getrlimit(number)) for number in _LIMITS),
        )
        status, reported = os.pipe()
        try:
            with launch.log.open("wb") as log:
                descriptors = [log.fileno(), launch.events, reported]
                message = json.dumps(encode(order)).encode()
                socket.send_fds(self._orders, [message], descriptors)
        except OSError:
            os.close(status)
            return None
        finally:
            os.close(reported)
        worker = _ForkedProcess.await_start(status)
        if worker is not None:
            self._workers.append(worker)
        return worker

    def close(self) -> None:
        """Close the server, which kills its remaining workers."""
        self._orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()


class _ForkedProcess:
    """A worker forked by a server, which reports its pid in one line and its exit code in the
    next.
    """

    def __init__(self, pid: int, status: int, rest: bytes) -> None:
        self.pid = pid
        self._status, self._rest = status, rest
        self._returncode: int | None = None
        self._lock = threading.Lock()  # accessed by its own thread and the next worker's

    @classmethod
    def await_start(cls, status: int) -> "_ForkedProcess | None":
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
        return self._returncode


def _shared(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the environment of a worker's server. With more than one thread, BLAS libraries start
    theirs when they are imported, and the server could not fork.
    """
    shared = {n: value for n, value in environment.items() if n not in PER_WORKER}
    return tuple(sorted((shared | {THREADS: "1"}).items()))


def _umask() -> int:
    with _UMASK:
        umask = os.umask(0o077)
        os.umask(umask)
    return umask

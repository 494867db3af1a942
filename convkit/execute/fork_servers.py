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
        # most recently used last; None: must not fork
        self._servers: dict[_Key, _Server | None] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self, launch: Launch) -> WorkerProcess:
        """Fork a worker, or start a fresh one if that is impossible."""
        tools = self._tools(launch.envelope)
        if not tools or sys.platform != "linux":
            return self._fresh.start(launch)
        key = (launch.python, _shared(launch.environment), tools)
        with self._lock:
            server = self._server(key)
            if server is not None:
                if (worker := server.fork(launch)) is not None:
                    return worker
                server.close()  # it is gone, or out of memory: the next worker gets a new one
                del self._servers[key]
        return self._fresh.start(launch)

    def close(self) -> None:
        """Close all servers, which kills their workers; those that are still importing at once."""
        self._closed.set()
        with self._lock:
            for server in filter(None, self._servers.values()):
                server.close()
            self._servers.clear()

    def _server(self, key: _Key) -> "_Server | None":
        if key in self._servers:
            self._servers[key] = server = self._servers.pop(key)
            return server
        idle = [each for each, one in self._servers.items() if one is not None and one.idle]
        for each in idle[: max(0, len(self._servers) + 1 - self._most)]:
            if (spare := self._servers.pop(each)) is not None:
                spare.close()
        self._servers[key] = started = _Server.start(*key, self._closed)
        return started


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

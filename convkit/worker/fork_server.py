"""Forks workers from a process that has already imported their tools.

The server reads orders from a socket; each order passes the descriptors for the worker's log,
events and status. The server itself runs no stage, so every worker starts from the same state, and
its changes end with it. `multiprocessing.forkserver` works the same way, but supports only the
interpreter, flags and environment of the process that starts it.
"""

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

from convkit.codec import decode
from convkit.worker.preloading import preload

READY = b"ready"
_LONGEST_ORDER = 64 * 1024
_DESCRIPTORS = 3  # per order: log, events, status
THREADS = "OMP_NUM_THREADS"
# Variables that each worker has for itself: those that only the Pythons that it starts read, and
# the number of threads.
PER_WORKER = ("PYTHONPYCACHEPREFIX", THREADS)


@dataclasses.dataclass(frozen=True)
class ForkOrder:
    """One worker to fork. It starts in `folder`, with its own values of the variables `PER_WORKER`,
    and with the `umask` and `limits` (soft and hard, by resource number) of the requesting process.
    """

    request: str
    result: str
    folder: str
    environment: dict[str, str]
    umask: int
    limits: tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class ForkedWorker:
    """State that the forked process continues with: its files, its event stream, and the server,
    whose exit ends it.
    """

    request: Path
    result: Path
    events_fd: int
    parent_pid: int


def await_order(descriptor: int, modules: Sequence[str]) -> ForkedWorker | None:
    """Import `modules`, then fork a worker for each order received from the socket.

    Returns twice, like fork: a `ForkedWorker` in each worker, and None in the server once the other
    end of the socket closes. By then, the server has killed all remaining workers.
    """
    with socket.socket(fileno=descriptor) as orders:
        refusal = _prepare(modules)
        orders.send(READY if refusal is None else refusal.encode())
        if refusal is not None:
            return None
        return _Server(orders).run()


def _prepare(modules: Sequence[str]) -> str | None:
    """Import what workers need; return the reason if this process must not fork."""
    gc.disable()  # imports leave little garbage, and looking for it takes a fifth of their time
    try:
        preload(modules)
    except Exception as error:  # noqa: BLE001 - a tool failed to import: a fresh worker will report it
        return f"{type(error).__name__}: {error}"
    if others := threads_lost_by_a_fork():
        return f"threads are running: {', '.join(others)}"
    gc.enable()
    gc.freeze()  # a garbage collection in a worker would copy every page it visits
    return None


def threads_lost_by_a_fork() -> list[str]:
    """Return the names of threads that a fork would drop, possibly leaving their locks held."""
    main = str(os.getpid())
    tasks = Path("/proc/self/task").iterdir()
    return [(task / "comm").read_text().strip() for task in tasks if task.name != main]


class _Server:
    """The loop that forks, reaps and reports."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        # Worker's process id -> the descriptor that reports its exit.
        self._statuses: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it interrupts the wait
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def run(self) -> ForkedWorker | None:
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if self._woken in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, _LONGEST_ORDER)
                self._reap()
            if self._orders.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(
                    self._orders, _LONGEST_ORDER, _DESCRIPTORS
                )
                if not message:
                    self._kill_all()
                    return None
                if (worker := self._fork(message, descriptors)) is not None:
                    return worker

    def _fork(self, message: bytes, descriptors: list[int]) -> ForkedWorker | None:
        """Return None in the server, and the worker's state in the worker."""
        log, events, status = descriptors
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # out of memory or processes: closing the status descriptor reports it
            for each in descriptors:
                os.close(each)
            return None
        if pid == 0:
            self._forget()
            return _become_worker(
                decode(ForkOrder, json.loads(message)), log, events, status, server
            )
        os.close(log)
        os.close(events)
        self._statuses[pid] = status
        return None

    def _forget(self) -> None:
        """In a worker: close everything that belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for descriptor in (
            self._woken,
            self._wake,
            self._orders.detach(),
            *self._statuses.values(),
        ):
            os.close(descriptor)

    def _reap(self) -> None:
        """Report the exit code of every worker that has ended."""
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            descriptor = self._statuses.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # the client is gone
                os.write(descriptor, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(descriptor)

    def _kill_all(self) -> None:
        for pid in self._statuses:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _become_worker(
    order: ForkOrder, log: int, events: int, status: int, server: int
) -> ForkedWorker:
    """Make a fork of the server look like a fresh process."""
    os.setsid()
    os.write(status, f"{os.getpid()}\n".encode())
    os.close(status)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    os.set_inheritable(events, True)  # noqa: FBT003 - as in a fresh worker
    os.chdir(order.folder)
    for name in PER_WORKER:
        os.environ.pop(name, None)
    os.environ.update(order.environment)
    _use_threads(order.environment.get(THREADS, ""))
    os.umask(order.umask)
    for number, soft, hard in order.limits:
        resource.setrlimit(number, (soft, hard))
    sys.argv[1:] = [order.request, order.result]
    reseed()
    disown_finalizers()
    return ForkedWorker(Path(order.request), Path(order.result), events, server)


def _use_threads(count: str) -> None:
    """Let torch use as many threads as a fresh worker's would: all processors if `count` is empty.

    OpenMP has read its variable in the server, which has one thread: others would be lost by the
    fork. NumPy's BLAS keeps to that one.
    """
    if "torch" in sys.modules:
        number = int(count) if count.isdigit() else len(os.sched_getaffinity(0))
        importlib.import_module("torch").set_num_threads(max(1, number))


def disown_finalizers() -> None:
    """Leave what was registered in the server (`weakref.finalize`) to the server's own exit.

    A worker would remove temporary folders that the next one needs, and take torch's operator
    libraries apart, which copies the pages they lie in.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public list
        finalizer.atexit = False


def reseed() -> None:
    """Seed NumPy's global generator from the system; otherwise every worker would draw the same
    numbers.

    Python reseeds its own generator after a fork. torch starts from a constant seed in any process.
    """
    if "numpy.random" in sys.modules:
        importlib.import_module("numpy.random").seed()

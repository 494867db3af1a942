"""Forks workers from a process that has already imported their tools.

The server reads orders from a socket; each order passes the descriptors for the worker's log,
events and status. The server itself runs no stage, so every worker starts from the same state, and
its changes end with it. `multiprocessing.forkserver` works the same way, but supports only the
interpreter, flags and environment of the process that starts it.

A server also forks loaders: servers that first load what several workers need, such as the original
model. Their workers share its memory, and each still has a model that nobody has used.
"""

import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import os
import resource
import selectors
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.jobs.fork_orders import PER_WORKER, READY, REST, THREADS, ForkOrder, LoadOrder
from convkit.protocol.jobs.preloading import preload
from convkit.protocol.json_codec import decode
from convkit.protocol.process_trees import adopt_orphans
from convkit.worker.process.child_reaper import ChildExits, become_reaper, kill, reap

if TYPE_CHECKING:
    from convkit.worker.process.opened_files import OpenedFiles

_LONGEST_ORDER = 64 * 1024
# Per order: a worker's log, events and status, or a loader's orders and status.
_DESCRIPTORS = 3
# Pools that have shut down, and bars that have closed, take a moment to end their threads.
_THREADS_END_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Loaded:
    """What was printed and which files were read while a loader loaded."""

    printed: bytes
    opened: "OpenedFiles"


@dataclasses.dataclass(frozen=True)
class ForkedWorker:
    """State that the forked process continues with: its files, its event stream, the server, whose
    exit ends it, and the files that were read for it before it began.
    """

    request: Path
    result: Path
    events_fd: int
    parent_pid: int
    opened: "OpenedFiles | None" = None


_Become = Callable[[], ForkedWorker | None]


def await_order(descriptor: int, modules: Sequence[str]) -> ForkedWorker | None:
    """Import `modules`, then fork a worker for each order received from the socket.

    Returns twice, like fork: a `ForkedWorker` in each worker, and None in the server once the other
    end of the socket closes. By then, the server has killed all remaining workers.
    """
    with socket.socket(fileno=descriptor) as orders:
        refusal = prepare(modules)
        orders.send(READY if refusal is None else refusal.encode())
        if refusal is not None:
            return None
        return _Server(orders).run()


def prepare(modules: Sequence[str]) -> str | None:
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

    def __init__(self, orders: socket.socket, loaded: Loaded | None = None) -> None:
        adopt_orphans()
        self._orders = orders
        self._loaded = loaded
        # Worker's process id -> the descriptor that reports its exit.
        self._statuses: dict[int, int] = {}
        self._exits = ChildExits()
        self._selector = selectors.DefaultSelector()
        self._selector.register(orders, selectors.EVENT_READ)
        self._selector.register(self._exits, selectors.EVENT_READ)

    def run(self) -> ForkedWorker | None:
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._exits in ready:
                self._exits.clear()
                reap(self._statuses)
            if self._orders in ready:
                message, descriptors, _, _ = socket.recv_fds(
                    self._orders, _LONGEST_ORDER, _DESCRIPTORS
                )
                if not message:
                    kill(self._statuses)
                    return None
                if message == REST:
                    self._rest()
                    continue
                if (become := self._fork(message, descriptors)) is not None:
                    return become()

    def _fork(self, message: bytes, descriptors: list[int]) -> _Become | None:
        """Return None in the server; in its fork, what makes it the ordered process."""
        *others, status = descriptors
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # out of memory or processes: closing the status descriptor reports it
            for each in descriptors:
                os.close(each)
            return None
        if pid == 0:
            self._forget()
            content = json.loads(message)
            if "function" in content:
                return functools.partial(_become_loader, decode(LoadOrder, content), *descriptors)
            order = decode(ForkOrder, content)
            return functools.partial(_become_worker, order, descriptors, server, self._loaded)
        for each in others:
            os.close(each)
        self._statuses[pid] = status
        return None

    def _forget(self) -> None:
        """In a worker: close everything that belongs to the server."""
        self._selector.close()
        self._exits.leave()
        for descriptor in (self._orders.detach(), *self._statuses.values()):
            os.close(descriptor)

    def _rest(self) -> None:
        """Keep only what reports and kills workers. Returns if this process has other work in the
        end, or if the program that replaces it cannot be started.
        """
        if _removes_folders():
            return
        self._exits.pause()
        with contextlib.suppress(OSError):
            become_reaper(self._orders.fileno(), self._statuses)
        self._exits.resume()


def _removes_folders() -> bool:
    """Return True if this process is to remove temporary folders when it exits."""
    registered = weakref.finalize._registry  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public list
    functions = [info.func for finalizer, info in list(registered.items()) if finalizer.atexit]
    return any(function.__module__ in ("shutil", "tempfile") for function in functions)


def _become_worker(
    order: ForkOrder, descriptors: Sequence[int], server: int, loaded: Loaded | None
) -> ForkedWorker:
    """Make a fork of the server look like a fresh process."""
    log, events, status = descriptors
    _lead_session(status)
    if loaded is not None and loaded.printed:
        os.write(log, loaded.printed)
    _print_to(log)
    os.set_inheritable(events, True)  # noqa: FBT003 - as in a fresh worker
    for name in PER_WORKER:
        os.environ.pop(name, None)
    os.environ.update(order.environment)
    _use_threads(order.environment.get(THREADS, ""))
    _settle(order)
    sys.argv[1:] = [order.request, order.result]
    reseed()
    opened = loaded.opened if loaded is not None else None
    return ForkedWorker(Path(order.request), Path(order.result), events, server, opened)


def _become_loader(order: LoadOrder, descriptor: int, status: int) -> ForkedWorker | None:
    """Make a fork of a server a server that has loaded what `order` says; returns as `await_order`
    does, and at once if it must not fork.
    """
    _lead_session(status)
    _settle(order)
    with socket.socket(fileno=descriptor) as orders:
        loaded = _load(order)
        orders.send(READY if isinstance(loaded, Loaded) else loaded.encode()[:_LONGEST_ORDER])
        return _Server(orders, loaded).run() if isinstance(loaded, Loaded) else None


def become_server(descriptor: int, status: int, order: LoadOrder) -> ForkedWorker | None:
    """Make a fork of a resident the server of one run; returns as `await_order` does."""
    _lead_session(status)
    _settle(order)
    with socket.socket(fileno=descriptor) as orders:
        orders.send(READY)
        return _Server(orders).run()


def _load(order: LoadOrder) -> Loaded | str:
    """Load what the order says; return the reason if this process must not fork."""
    from convkit.worker.process.opened_files import OpenedFiles

    module, _, name = order.function.partition(":")
    gc.disable()  # as in `prepare`
    try:
        with _printing_kept() as read, OpenedFiles(None) as opened:
            getattr(importlib.import_module(module), name)(order.argument)
    except Exception as error:  # noqa: BLE001 - it failed to load: the stage itself will report it
        return f"{type(error).__name__}: {error}"
    _end_progress_bars()
    deadline = time.monotonic() + _THREADS_END_SECONDS
    while others := threads_lost_by_a_fork():
        if time.monotonic() > deadline:
            return f"threads are running: {', '.join(others)}"
        time.sleep(0.01)
    gc.enable()
    gc.freeze()
    return Loaded(read(), opened)


@contextlib.contextmanager
def _printing_kept() -> Iterator[Callable[[], bytes]]:
    """Keep what this process prints from now on; provide what returns it."""
    kept = os.memfd_create("printed")
    _print_to(os.dup(kept))

    def read() -> bytes:
        return os.pread(kept, os.fstat(kept).st_size, 0)

    try:
        yield read
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _end_progress_bars() -> None:
    """End the thread that watches over tqdm's progress bars; the next bar starts another one."""
    for thread in threading.enumerate():
        if type(thread).__name__ == "TMonitor" and hasattr(thread, "exit"):
            thread.exit()


def _lead_session(status: int) -> None:
    """Lead a session, and report it."""
    disown_finalizers()
    os.setsid()
    os.write(status, f"{os.getpid()}\n".encode())
    os.close(status)


def _print_to(log: int) -> None:
    """Print to a file, whose descriptor is closed."""
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)


def _settle(order: ForkOrder | LoadOrder) -> None:
    """Use the folder, mask and limits of an order."""
    os.chdir(order.folder)
    os.umask(order.umask)
    for number, soft, hard in order.limits:
        resource.setrlimit(number, (soft, hard))


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

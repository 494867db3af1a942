"""Starts workers by forking a process that has already imported their tools.

Importing torch and transformers costs a worker 3 s, coremltools 8 s, a fork a hundredth of a
second. A server keeps the modules it has imported: start new ones after packages or convkit's own
code have changed.

Export and reference begin with the same model. If loading it runs no code of the user's, a loader
loads it once, and both are forked from that: they share its memory.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from convkit.execute.forked_processes import ForkedProcess, Server
from convkit.execute.workers import FreshProcesses, Launch, WorkerProcess, WorkerStrategy
from convkit.plan.stages import Stage
from convkit.runtimes.registry import runtimes
from convkit.worker.fork_server import PER_WORKER, THREADS
from convkit.worker.preloading import LOAD_MODEL, preloaded_tools, shared_source, tools_of_job
from convkit.worker.protocol import Envelope

_Key = tuple[Path, tuple[tuple[str, str], ...], tuple[str, ...]]


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


def close_unneeded(workers: WorkerStrategy | None, left: Collection[Stage]) -> None:
    """Close the servers of a run's own strategy that no worker of its remaining stages will be
    forked from.
    """
    if isinstance(workers, ForkServers):
        rows = runtimes()
        needed = (
            tools_of_job(each.kind, rows[each.runtime] if each.runtime else None) for each in left
        )
        workers.keep(frozenset().union(*needed))


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

    def keep(self, needed: Collection[tuple[str, ...]]) -> None:
        """Close the idle servers whose tools are not among `needed`: each holds what it imported,
        0.25 GB with torch.
        """
        with self._lock:
            idle = [key for key, slot in self._slots.items() if slot.idle and key[2] not in needed]
            unneeded = [self._slots.pop(key) for key in idle]
        for slot in unneeded:
            slot.close()

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
        self._server: Server | None = None
        self._must_not_fork = False
        self._loaders: dict[str, _Loader] = {}  # by source
        self._lock = threading.Lock()  # never taken by a thread that waits for a loader's

    @property
    def idle(self) -> bool:
        """True if there is a server that nobody is using."""
        return self.users == 0 and self._server is not None and self._server.idle

    def fork(self, launch: Launch, closed: threading.Event) -> ForkedProcess | None:
        """Fork a worker, as soon as the server has started; None if that is impossible."""
        with self._lock:
            if self._server is None and not self._must_not_fork:
                self._server = Server.start(*self._key, closed)
                self._must_not_fork = self._server is None
            if self._server is None:
                return None
        worker = self._with_model(launch, closed)
        return worker if worker is not None or closed.is_set() else self._without(launch)

    def _with_model(self, launch: Launch, closed: threading.Event) -> ForkedProcess | None:
        """Fork a worker from a process that has loaded its model; None if none can."""
        source = shared_source(launch.envelope)
        if source is None:
            return None

        def fork_loader() -> Server | None:
            with self._lock:
                server = self._server
                return server.fork_loader(LOAD_MODEL, source, launch.folder) if server else None

        with self._lock:
            loader = self._loaders.setdefault(json.dumps(source, sort_keys=True), _Loader())
        return loader.fork(launch, fork_loader, closed)

    def _without(self, launch: Launch) -> ForkedProcess | None:
        with self._lock:
            if self._server is None:
                return None
            if (worker := self._server.fork(launch)) is None:
                self._empty()  # it is gone, or out of memory: the next worker gets a new one
            return worker

    def close(self) -> None:
        """Close the server and its loaders."""
        with self._lock:
            loaders = [*self._loaders.values()]
        for loader in loaders:
            loader.close()
        with self._lock:
            self._empty()

    def _empty(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


class _Loader:
    """Holds the server that has loaded one model, from its first worker's start to its last one's
    end: until then, the model is in memory once.
    """

    def __init__(self) -> None:
        self._server: Server | None = None
        self._must_not_fork = False
        self._workers = 0
        self._lock = threading.Lock()

    def fork(
        self, launch: Launch, fork_loader: Callable[[], Server | None], closed: threading.Event
    ) -> ForkedProcess | None:
        """Fork a worker, as soon as the model is loaded. None if that is impossible: the worker
        will load the model itself, and report why that fails.
        """
        with self._lock:
            if self._server is None and not self._must_not_fork:
                server = fork_loader()
                if server is not None and server.ready(closed, launch.deadline):
                    self._server = server
                self._must_not_fork = self._server is None
            if self._server is None:
                return None
            if (worker := self._server.fork(launch)) is None:
                self._must_not_fork = True
                return None
            self._workers += 1
            worker.when_ended = self._one_less
            return worker

    def _one_less(self) -> None:
        with self._lock:
            self._workers -= 1
            if self._workers == 0:
                self._end()

    def close(self) -> None:
        """Close the server, which kills its workers."""
        with self._lock:
            self._must_not_fork = True
            self._end()

    def _end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def _shared(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the environment of a worker's server. With more than one thread, BLAS libraries start
    theirs when they are imported, and the server could not fork.
    """
    shared = {n: value for n, value in environment.items() if n not in PER_WORKER}
    return tuple(sorted((shared | {THREADS: "1"}).items()))

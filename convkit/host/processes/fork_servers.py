"""Starts workers by forking a process that has already imported their tools.

Importing torch and transformers costs a worker 3 s, coremltools 8 s, a fork a hundredth of a
second. A server keeps the modules it has imported: start new ones after packages or convkit's own
code have changed.

Export and reference begin with the same model. If loading it runs no code of the user's, a loader
loads it once, and both are forked from that: they share its memory.
"""

import collections
import contextlib
import dataclasses
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from convkit.host.plan.stages import Stage
from convkit.host.processes.forked_processes import ForkedProcess, Server, ServerRefusedError
from convkit.host.processes.residents import Residents
from convkit.host.processes.worker_start import (
    FreshProcesses,
    Launch,
    WorkerProcess,
    WorkerStrategy,
)
from convkit.protocol.jobs.fork_orders import PER_WORKER, THREADS
from convkit.protocol.jobs.preloading import (
    LOAD_MODEL,
    further_tools,
    preloaded_tools,
    shared_source,
    tools_of_job,
)
from convkit.protocol.messages import Envelope
from convkit.protocol.runtimes.runtime_registry import runtimes

_Key = tuple[Path, tuple[tuple[str, str], ...], tuple[str, ...]]


@contextlib.contextmanager
def forking(
    workers: WorkerStrategy, residents: Residents | None = None
) -> Iterator[WorkerStrategy]:
    """Provide a strategy for one run: its stages share what they import, with `residents` also with
    the runs before and after it.

    Strategies other than plain fresh processes have their own way to start workers, and stay.
    """
    if workers != FreshProcesses():
        yield workers
        return
    with contextlib.closing(ForkServers(residents=residents)) as servers:
        yield servers
        servers.start_for_next_run()


def close_unneeded(workers: WorkerStrategy | None, left: Collection[Stage]) -> None:
    """Close the servers of a run's own strategy that no worker of its remaining stages will be
    forked from.
    """
    if isinstance(workers, ForkServers):
        workers.keep([_planned_job(stage) for stage in left])


def expect_stages(workers: WorkerStrategy | None, stages: Collection[Stage]) -> None:
    """Tell a run's own strategy which stages will start."""
    if isinstance(workers, ForkServers):
        workers.expect([_planned_job(stage) for stage in stages])


@dataclasses.dataclass(frozen=True)
class PlannedJob:
    """A job that is to run, and the sets of tools that its server may have."""

    job: str
    tools: frozenset[tuple[str, ...]]


def _planned_job(stage: Stage) -> PlannedJob:
    runtime = runtimes()[stage.runtime] if stage.runtime else None
    return PlannedJob(stage.kind, tools_of_job(stage.kind, runtime))


class ForkServers:
    """A strategy with one server per interpreter, environment and set of tools.

    Workers without costly imports are fresh processes, and so are those whose server must not fork
    (an import failed or started threads; any system but Linux). At most `most` idle servers are
    kept, the most recently used ones.

    `tools` says what a worker's server imports ahead. With more than what its stage always imports,
    workers start sooner, but report versions of packages that they did not use. Servers are forks
    of `residents`, if given.
    """

    def __init__(
        self,
        most: int = 4,
        tools: Callable[[Envelope], tuple[str, ...]] = preloaded_tools,
        residents: Residents | None = None,
    ) -> None:
        self._most, self._tools, self._residents = most, tools, residents
        self._fresh = FreshProcesses()
        self._slots: dict[_Key, _Slot] = {}  # most recently used last
        self._due: list[PlannedJob] | None = None  # None: not known
        self._lock = threading.Lock()  # never held while a server imports or ends
        self._closed = threading.Event()
        # Whoever runs again and again gets processes that have imported more, at the end of a run.
        self._runs_again = residents is not None and residents.any()
        self._wanted: set[_Key] = set()

    def start(self, launch: Launch) -> WorkerProcess:
        """Fork a worker, or start a fresh one if that is impossible."""
        tools = self._tools(launch.envelope)
        if not tools or sys.platform != "linux":
            return self._fresh.start(launch)
        environment = _shared(launch.environment)
        tools = self._with_further(launch, environment) or tools
        with self._slot((launch.python, environment, tools)) as slot:
            worker = slot.fork(launch, self._closed)
            if self._was_last(launch.envelope.job, tools):
                slot.rest()
        return worker or self._fresh.start(launch)

    def _with_further(
        self, launch: Launch, environment: tuple[tuple[str, str], ...]
    ) -> tuple[str, ...]:
        """Return what a resident that serves only workers like this one has imported; nothing if
        there is none.
        """
        further = further_tools(launch.envelope)
        if not further or self._residents is None:
            return ()
        if self._residents.has(launch.python, environment, further):
            return further
        if self._runs_again:
            self._wanted.add((launch.python, environment, further))
        return ()

    def start_for_next_run(self) -> None:
        """Start the residents that this run would have used, had they been there."""
        for python, environment, tools in self._wanted:
            assert self._residents is not None
            self._residents.start(python, environment, tools)

    def expect(self, due: Collection[PlannedJob]) -> None:
        """Note which jobs will be started, so that servers free their memory after the last."""
        with self._lock:
            self._due = [*due]

    def _was_last(self, job: str, tools: tuple[str, ...]) -> bool:
        """Note that a job has started; return True if no other will be forked with its tools."""
        with self._lock:
            if self._due is None:
                return False
            started = next((each for each in self._due if each.job == job), None)
            if started is not None:
                self._due.remove(started)
            return not any(tools in each.tools for each in self._due)

    def keep(self, left: Collection[PlannedJob]) -> None:
        """Close the idle servers that none of the jobs that are left (unstarted or running) can be
        forked from: each holds what it imported, 0.25 GB with torch.
        """
        needed = frozenset().union(*(each.tools for each in left))
        with self._lock:
            if self._due is not None:  # some ended without a worker, as their results were known
                self._due = [
                    *(collections.Counter(self._due) & collections.Counter(left)).elements()
                ]
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
            self._slots[key] = slot = self._slots.pop(key, None) or _Slot(key, self._residents)
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

    def __init__(self, key: _Key, residents: Residents | None) -> None:
        self.users = 0
        self._key, self._residents = key, residents
        self._server: Server | None = None
        self._must_not_fork = False
        self._loaders: dict[str, _Loader] = {}  # by source
        self._resting: list[Server | _Loader] = []
        self._lock = threading.Lock()  # never taken by a thread that waits for a loader's

    @property
    def idle(self) -> bool:
        """True if there is a server that nobody is using."""
        servers = [each for each in (self._server, *self._resting) if isinstance(each, Server)]
        return self.users == 0 and bool(servers) and all(server.idle for server in servers)

    def fork(self, launch: Launch, closed: threading.Event) -> ForkedProcess | None:
        """Fork a worker, as soon as the server has started; None if that is impossible."""
        with self._lock:
            if self._server is None and not self._must_not_fork:
                self._server = self._started(closed)
                self._must_not_fork = self._server is None
            if self._server is None:
                return None
        worker = self._with_model(launch, closed)
        return worker if worker is not None or closed.is_set() else self._without(launch)

    def _started(self, closed: threading.Event) -> Server | None:
        """Return a server of a resident, or one of our own; None if a server must not fork."""
        if self._residents is not None:
            try:
                server = self._residents.server(*self._key, closed)
            except ServerRefusedError:
                return None
            if server is not None:
                return server
        return Server.start(*self._key, closed)

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

    def rest(self) -> None:
        """Let the server and its loaders free their memory; another worker gets a new server."""
        with self._lock:
            resting: list[Server | _Loader] = [*self._loaders.values()]
            resting += [self._server] if self._server is not None else []
            self._loaders, self._server = {}, None
            self._resting += resting
        for each in resting:
            each.rest()

    def close(self) -> None:
        """Close the servers and their loaders."""
        with self._lock:
            others = [*self._loaders.values(), *self._resting]
        for each in others:
            each.close()
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

    def rest(self) -> None:
        """Let the server free its memory, the model included, but what its workers share."""
        with self._lock:
            self._must_not_fork = True
            if self._server is not None:
                self._server.rest()

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

"""Keeps a fleet worker's fork servers from one order to the next, while orders keep coming."""

import contextlib
import threading
from collections.abc import Iterator

from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import FreshProcesses, WorkerStrategy

_IDLE_SECONDS = 300.0


class WarmWorkers:
    """Lends one set of fork servers to all orders of a process.

    Orders come one stage at a time, unlike a run, which knows when its last stage has ended:
    the servers end after `idle_seconds` without an order, because their imports hold several
    hundred megabytes. The system ends them with this process.
    """

    def __init__(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._servers: ForkServers | None = None
        self._borrowers = 0
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def lent(self, workers: WorkerStrategy) -> Iterator[WorkerStrategy]:
        """Provide a strategy for one order's stages.

        Strategies other than plain fresh processes have their own way to start workers, and stay.
        """
        if workers != FreshProcesses():
            yield workers
            return
        with self._lock:
            self._borrowers += 1
            if self._timer is not None:
                self._timer.cancel()
            servers = self._servers = self._servers or ForkServers()
        try:
            yield servers
        finally:
            with self._lock:
                self._borrowers -= 1
                self._timer = threading.Timer(self._idle_seconds, self._end_if_idle)
                self._timer.daemon = True
                self._timer.start()

    def _end_if_idle(self) -> None:
        with self._lock:
            if self._borrowers or self._servers is None:
                return
            servers, self._servers = self._servers, None
        servers.close()

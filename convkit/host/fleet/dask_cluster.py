"""A run's view of a Dask cluster: its workers, and tasks that are awaited individually."""

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from convkit.host.fleet.tls_certificates import security_for
from convkit.host.fleet.worker_tags import Tags
from convkit.protocol.errors import ConvkitError, FleetError, Interrupted
from convkit.protocol.installation import install_command

_CONNECT_SECONDS = 15.0
# How long the list of workers is cached, and how long a stage waits for a worker after the last
# suitable one has gone.
_FRESH_SECONDS = 2.0
_GONE_SECONDS = 20.0
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 5.0
# A scheduler that loses a run's connection drops its tasks by itself, so leaving early loses
# nothing.
_INTERRUPTED_SECONDS = 0.5
# Retries if a shared store does not answer.
_RETRIES = 2


class NoWorkerLeft(Exception):  # noqa: N818 - a result, which the settler turns into a skipped stage
    """All workers that could run a stage are gone."""


def import_distributed() -> Any:  # noqa: ANN401 - Dask is only partly typed
    """Return the `distributed` package; raises FleetError if the extra is not installed."""
    try:
        import distributed  # noqa: PLC0415 - an optional dependency, needed by fleets only
    except ImportError as error:
        raise FleetError(f"a fleet needs Dask's distributed: {install_command('fleet')}") from error
    return distributed


@contextlib.contextmanager
def connect(address: str) -> Iterator["Cluster"]:
    """Connect to a scheduler's cluster; raises FleetError if it does not answer."""
    distributed = import_distributed()
    security = security_for(address)
    try:
        client = distributed.Client(
            address, timeout=_CONNECT_SECONDS, set_as_default=False, security=security
        )
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        raise FleetError(
            f"--scheduler {address}: no Dask scheduler answers there ({error}). Start one with:"
            " dask scheduler"
        ) from error
    closing = _CLOSE_SECONDS
    try:
        yield Cluster(address, client)
    except (KeyboardInterrupt, Interrupted):
        closing = _INTERRUPTED_SECONDS
        raise
    finally:
        client.close(timeout=closing)


class Cluster:
    """The workers of a scheduler, and access to them."""

    def __init__(self, address: str, client: Any) -> None:  # noqa: ANN401 - as above
        self.address = address
        self.client = client
        self._known: dict[str, Any] = {}
        self._known_at = float("-inf")
        self._lock = threading.Lock()

    def workers(self, *, fresh: bool = False) -> dict[str, Any]:
        """Return the scheduler's information on each worker, at most two seconds old."""
        with self._lock:
            if fresh or time.monotonic() > self._known_at + _FRESH_SECONDS:
                try:
                    self._known = dict(self.client.scheduler_info(n_workers=-1)["workers"])
                except (OSError, TimeoutError) as error:
                    raise FleetError(
                        f"the scheduler at {self.address} no longer answers: {error}"
                    ) from error
                self._known_at = time.monotonic()
            return self._known

    def tags(self) -> list[Tags]:
        """Return each worker's announced tags."""
        return [worker["resources"] for worker in self.workers().values()]

    @property
    def threads(self) -> int:
        """The number of stages that the workers run concurrently."""
        return sum(int(worker["nthreads"]) for worker in self.workers().values())

    def perform(
        self,
        task: Any,  # noqa: ANN401 - dask takes any callable
        argument: str,
        name: str,
        resources: Tags,
        cancelled: threading.Event,
    ) -> str:
        """Run `task(argument)` on a worker with these resources and return its result.

        If the worker is lost, another one takes over. Raises NoWorkerLeft, Interrupted if
        `cancelled` is set (the task is asked to stop), and FleetError if the cluster failed.
        """
        future = self.client.submit(
            task,
            argument,
            key=f"convkit-{name}-{secrets.token_hex(6)}",
            resources=dict(resources),
            retries=_RETRIES,
            pure=False,
        )
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        try:
            return self._result(future, ended, resources, cancelled)
        except (ConvkitError, NoWorkerLeft):
            raise
        except Exception as error:
            raise FleetError(f"{name}: {_explain(error, self.address)}") from error
        finally:
            future.cancel()

    def _result(
        self,
        future: Any,  # noqa: ANN401 - dask has no types
        ended: threading.Event,
        resources: Tags,
        cancelled: threading.Event,
    ) -> str:
        gone_since: float | None = None
        looked = time.monotonic()
        while True:
            if ended.wait(_POLL_SECONDS):
                # If the worker is lost before its result is fetched, Dask reruns the task by
                # itself.
                with contextlib.suppress(TimeoutError):
                    return str(future.result(timeout=_POLL_SECONDS))
            if cancelled.is_set():
                raise Interrupted("interrupted")
            if time.monotonic() < looked + _FRESH_SECONDS:
                continue
            looked = time.monotonic()
            if any(
                all(tags.get(name, 0.0) >= n for name, n in resources.items())
                for tags in self.tags()
            ):
                gone_since = None
                continue
            gone_since = gone_since or looked
            if looked > gone_since + _GONE_SECONDS:
                raise NoWorkerLeft


def _explain(error: Exception, address: str) -> str:
    match type(error).__name__:
        case "KilledWorker":
            return (
                "every worker that ran it was lost: killed, out of memory, or disconnected. See "
                "the workers' own logs; if the stage needs more memory, use a larger machine"
            )
        case "FutureCancelledError" | "CancelledError":
            return (
                f"the task was lost: the scheduler at {address} was stopped or restarted; run again"
                " to continue"
            )
        case _:
            return f"{type(error).__name__}: {error}"

"""Runs a fleet's worker, and reports a fleet's status."""

import asyncio
import dataclasses
import signal
from pathlib import Path
from typing import Any

from convkit.host.fleet.dask_cluster import connect, import_distributed
from convkit.host.fleet.remote_stage import HOME_KEY
from convkit.host.fleet.tls_certificates import listening_address, security_for
from convkit.host.fleet.worker_tags import PLATFORM, PROCESSOR, Tags, announced_tags
from convkit.host.home import Home
from convkit.protocol.errors import FleetError, UsageError

_CONNECT_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """One worker: how many stages it can run and is running, and its tags."""

    name: str
    address: str
    threads: int
    running: int
    platform: str
    processor: str
    tags: dict[str, float]


def parse_tags(given: str | None) -> dict[str, float]:
    """Parse tags such as `CUDA=1,MEM=16`; raises UsageError."""
    tags: dict[str, float] = {}
    for part in filter(None, (given or "").replace(",", " ").split()):
        name, equals, amount = part.partition("=")
        try:
            tags[name] = float(amount)
        except ValueError as error:
            raise UsageError(
                f"--resources {part}: write NAME=NUMBER, for instance CUDA=1,MEM=16"
            ) from error
        if not (name and equals):
            raise UsageError(f"--resources {part}: write NAME=NUMBER, for instance CUDA=1,MEM=16")
    return tags


@dataclasses.dataclass(frozen=True)
class Listening:
    """Where a worker listens. If `host` is None, on the address that reaches the scheduler."""

    host: str | None = None
    insecure: bool = False


def run_fleet_worker(
    scheduler: str, home: Home, given: Tags, threads: int, name: str | None, listening: Listening
) -> None:
    """Serve a scheduler until it exits or a signal arrives.

    Raises FleetError if no scheduler answers, UsageError if unauthenticated clients could reach the
    worker.
    """
    import_distributed()  # raises an error with installation instructions
    host = listening_address(scheduler, listening.host, insecure=listening.insecure)
    import dask.config  # noqa: PLC0415 - an optional dependency

    home.root.mkdir(parents=True, exist_ok=True)
    dask.config.set({HOME_KEY: str(home.root)})
    asyncio.run(_serve(scheduler, host, home.root / "fleet", announced_tags(given), threads, name))


async def _serve(
    scheduler: str, host: str, folder: Path, tags: dict[str, float], threads: int, name: str | None
) -> None:
    worker = import_distributed().Worker(
        scheduler,
        host=host,
        # Dask's dashboard of a worker has no authentication, and TLS does not cover it.
        dashboard_address="127.0.0.1:0",
        security=security_for(scheduler),
        nthreads=threads,
        name=name,
        resources=tags,
        # Stages are separate processes, whose memory does not count toward this one's.
        memory_limit=0,
        local_directory=str(folder),
        death_timeout=_CONNECT_SECONDS,
    )
    try:
        await worker
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        raise FleetError(
            f"{scheduler}: no Dask scheduler answers there ({error}). Start: dask scheduler"
        ) from error
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[Any]] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(
            number, lambda: closing.append(loop.create_task(worker.close(timeout=10)))
        )
    await worker.finished()


def fleet_status(scheduler: str) -> list[WorkerStatus]:
    """Return a scheduler's workers, by name; raises FleetError if it does not answer."""
    with connect(scheduler) as cluster:
        found = [
            _status(address, worker) for address, worker in cluster.workers(fresh=True).items()
        ]
    return sorted(found, key=lambda worker: worker.name)


def _status(address: str, worker: Any) -> WorkerStatus:  # noqa: ANN401 - Dask's
    resources: dict[str, float] = worker["resources"]

    def one(prefix: str) -> str:
        return next(
            (name.removeprefix(prefix) for name in resources if name.startswith(prefix)), ""
        )

    tags = {
        name: amount
        for name, amount in resources.items()
        if not name.startswith((PLATFORM, PROCESSOR))
    }
    running = int(worker.get("metrics", {}).get("task_counts", {}).get("executing", 0))
    return WorkerStatus(
        str(worker["name"]),
        address,
        int(worker["nthreads"]),
        running,
        one(PLATFORM),
        one(PROCESSOR),
        tags,
    )

"""A run's fleet: a cluster, a shared store, and the settler that uses them."""

import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convkit.host.fleet.dask_cluster import Cluster, connect
from convkit.host.fleet.stage_sending import FleetSettler
from convkit.host.fleet.worker_tags import absent_devices_among
from convkit.host.home import Home
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.stages.stage_runner import StageRunner
from convkit.protocol.errors import UsageError

_MOST_THREADS = 256


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Where a run's stages execute. `store` is the shared store's URL."""

    cluster: Cluster
    store: str

    def absent_parts(self, recipe: Recipe) -> dict[str, str]:
        """Return the devices that a recipe's targets name but no worker has, each with an
        explanation.
        """
        absent = absent_devices_among(recipe, self.cluster.tags())
        return {
            device: f"no worker of the fleet has a {device} device" for device in sorted(absent)
        }

    def jobs(self, asked: int) -> int:
        """Return how many stages to run concurrently: enough that no worker idles."""
        return min(_MOST_THREADS, max(asked, 2 * self.cluster.threads))

    def settler(self, local: StageRunner, listener: Listener) -> FleetSettler:
        """Return a run's settler, after pushing the files that its recipe refers to."""
        topic = f"convkit-{secrets.token_hex(6)}"

        def on_event(event: tuple[float, dict[str, Any]]) -> None:
            message = event[1]
            listener.stage_progress(message["stage"], message["message"], message["done"])

        self.cluster.client.subscribe_topic(topic, on_event)
        return FleetSettler.of(local, self.cluster, self.store, topic)


@contextlib.contextmanager
def fleet_of(scheduler: str | None, store: str | None, home: Home) -> Iterator[Fleet | None]:
    """Connect to a run's fleet; None without a scheduler: stages then run here."""
    if scheduler is None:
        if store is not None:
            raise UsageError(
                f"--store {store}: only a fleet uses a shared store; pass --scheduler, too"
            )
        yield None
        return
    with connect(scheduler) as cluster:
        yield Fleet(cluster, _url(store) if store else (home.root / "shared").as_uri())


def _url(store: str) -> str:
    """Return a store's URL; a plain path becomes absolute, the same for each worker."""
    return store if "://" in store else Path(store).expanduser().absolute().as_uri()

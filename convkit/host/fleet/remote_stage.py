"""Runs one stage in a fleet's worker: fetches missing inputs, settles the stage like any run,
pushes the result.
"""

import contextlib
import dataclasses
import json
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from convkit.host.facts.observed_files import opened_in, with_opened
from convkit.host.facts.planning_facts import ResolvedFacts, gather
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.fleet.stage_orders import Answered, StageOrder
from convkit.host.fleet.warm_fork_servers import WarmWorkers
from convkit.host.home import Home
from convkit.host.plan.stage_keys import explain_change, ingredients, possible_keys, stage_key
from convkit.host.processes.progress_events import SilentListener
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.stages.stage_outcome import Settled
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.store import Store
from convkit.protocol.errors import ConvkitError, FleetError, Interrupted, StoreUnreachable
from convkit.protocol.json_codec import CodecError, decode, encode

HOME_KEY = "convkit.home"  # in Dask's configuration, which is global to the process
_LOOK_SECONDS = 0.2
_PROGRESS_SECONDS = 0.5
# Dask's states of a task that is still wanted.
_WANTED = frozenset({"executing", "long-running", "resumed"})
# Python 3.11's own parser (used for recipes' factories, packages' markers) occasionally fails if
# two threads use it at once: SystemError: AST constructor recursion depth mismatch
# (python/cpython#106905).
_PARSING = threading.Lock()
_WARM = WarmWorkers()
_ALIVE = frozenset({"running", "paused"})


def run_stage(text: str) -> str:
    """Run an order (JSON) in this worker and return its answer (JSON).

    Raises StoreUnreachable, which triggers a retry. All other errors are part of the answer.
    """
    import dask.config  # noqa: PLC0415 - this runs in a Dask worker
    from distributed import get_worker  # noqa: PLC0415

    worker = get_worker()
    given = dask.config.get(HOME_KEY, None)
    home = Home.find(Path(given) if given else None)
    try:
        order = decode(StageOrder, json.loads(text))
        with _watching(worker) as cancelled:
            answer = perform(
                order, home, _Reporter(worker, order.topic), cancelled, str(worker.name)
            )
    except StoreUnreachable:
        raise
    except Interrupted:
        answer = Answered(str(worker.name), interrupted=True)
    except CodecError as error:
        problem = (
            f"worker {worker.name} does not understand the run: {error}. Install the same convkit"
            " on both."
        )
        answer = Answered(str(worker.name), error=problem)
    except ConvkitError as error:
        answer = Answered(str(worker.name), error=f"worker {worker.name}: {error}")
    except Exception:  # noqa: BLE001 - a bug. Dask cannot transfer every exception, and would then never answer
        problem = (
            f"worker {worker.name}: this is a bug in convkit; please report"
            f" it\n{traceback.format_exc()}"
        )
        answer = Answered(str(worker.name), error=problem)
    return json.dumps(encode(answer))


def perform(
    order: StageOrder, home: Home, listener: SilentListener, cancelled: threading.Event, name: str
) -> Answered:
    """Settle an order's stage on this machine; push the result to the shared store."""
    store = Store(home.store)
    with in_use(home.store):
        try:
            return _perform(order, home, store, listener, cancelled, name)
        finally:
            store.release_views()


def _perform(
    order: StageOrder,
    home: Home,
    store: Store,
    listener: SilentListener,
    cancelled: threading.Event,
    name: str,
) -> Answered:
    shared = SharedStore(order.store)
    shared.pull(order.files, store)
    place = store.view(order.files) / PurePosixPath(order.place)
    place.parent.mkdir(
        parents=True, exist_ok=True
    )  # paths that begin with .. start there, even if the folder has no files
    with _PARSING:
        loaded = parse_recipe(order.recipe, place)
        surroundings = _surroundings(order, loaded, home, name)
    for artifact in order.inputs.values():
        shared.pull(artifact, store)
    if not order.force:
        keys = possible_keys(order.ingredients)
        shared.adopt_first(keys, store)  # a worker that has since been lost may have completed it
    with _WARM.lent(WORKERS[surroundings.facts.toolchain]) as workers:
        runner = StageRunner(
            loaded, surroundings, home, store, listener, cancelled, order.force, workers=workers
        )
        settled = runner.settle(order.stage, order.inputs)
    return _push(settled, store, shared, name)


def _surroundings(order: StageOrder, loaded: LoadedRecipe, home: Home, name: str) -> ResolvedFacts:
    """Return this machine's facts; raises FleetError if they would change the stage."""
    known = {order.stage.environment: order.resolution} if order.resolution is not None else {}
    found = gather(loaded, (order.stage,), home, order.toolchain, recorded_tools(known), fetch=True)
    # This machine may not know the files that the model is loaded from; the order's key includes
    # them.
    facts = with_opened(found.facts, order.stage, opened_in(order.ingredients))
    found = dataclasses.replace(found, facts=facts)
    parts = ingredients(order.stage, loaded.recipe, facts, order.inputs)
    if parts is None or stage_key(parts) != order.key:
        difference = (
            "its tools are not known"
            if parts is None
            else explain_change(parts, {}, order.ingredients, {})
        )
        raise FleetError(
            f"{order.stage.id} would be another stage on worker {name} than in this run:"
            f" {difference}. Install the same convkit (and, with --toolchain host, the same"
            " packages) there."
        )
    return found


def _push(settled: Settled, store: Store, shared: SharedStore, name: str) -> Answered:
    report = settled.report
    if report.artifact is None:
        return Answered(name, report, settled.log)
    shared.push(report.artifact, store)
    record = store.record(report.key)
    if record is None:  # it found errors: such results are used but not stored
        return Answered(name, report, settled.log, encode(settled.result))
    standing = shared.push_record(record, settled.log)
    if standing.artifact == record.artifact:
        return Answered(name, report, kept=True)
    shared.adopt(report.key, store)
    return Answered(name, report, kept=True, second=record.artifact)


class _Reporter(SilentListener):
    """Forwards a stage's progress to the run, at most a few times per second."""

    def __init__(self, worker: Any, topic: str) -> None:  # noqa: ANN401 - Dask's
        self._worker, self._topic = worker, topic
        self._reported_at = float("-inf")

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """Forward the progress."""
        if time.monotonic() > self._reported_at + _PROGRESS_SECONDS:
            self._reported_at = time.monotonic()
            self._worker.log_event(self._topic, {"stage": stage, "message": message, "done": done})


@contextlib.contextmanager
def _watching(worker: Any) -> Iterator[threading.Event]:  # noqa: ANN401 - Dask's
    """Yield an event that is set when the task is unwanted: Dask never stops a running one."""
    key, cancelled, ended = worker.get_current_task(), threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            task = worker.state.tasks.get(key)
            if task is None or task.state not in _WANTED or worker.status.name not in _ALIVE:
                cancelled.set()
                return

    watcher = threading.Thread(target=watch, name="convkit-watch", daemon=True)
    watcher.start()
    try:
        yield cancelled
    finally:
        ended.set()
        watcher.join()

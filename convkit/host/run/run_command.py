"""`convkit run`: from a recipe file to a finished run on disk."""

import concurrent.futures
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.code_digests import code_digests
from convkit.host.facts.planning_facts import gather
from convkit.host.facts.version_sources import Resolver
from convkit.host.plan.stage_keys import Facts, ingredients, possible_keys
from convkit.host.plan.stages import Stage, plan_stages
from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe
from convkit.host.run.run_folder import is_intact, read_record
from convkit.host.run.run_key import run_key
from convkit.host.run.run_options import Lineage, RunOptions, RunOutcome, RunWork
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import StageRecord, Store
from convkit.host.verdict.waivers import day_of
from convkit.protocol.errors import TrackingError

if TYPE_CHECKING:
    from convkit.host.fleet.run_fleet import Fleet
    from convkit.host.track.run_tracker import Tracker

# Seconds after which what follows the stages is shown.
_PATIENCE_SECONDS = 1.0


def run_recipe(options: RunOptions, listener: Listener | None = None) -> RunOutcome:
    """Run a recipe, or return the earlier run that already has the result.

    Raises RecipeError and other ConvkitErrors before any stage starts; KeyboardInterrupt after
    stopping the workers.
    """
    return run_loaded(options, load_recipe(options.recipe), listener)


def run_loaded(
    options: RunOptions,
    loaded: LoadedRecipe,
    listener: Listener | None = None,
    lineage: Lineage | None = None,
    tools: Resolver | None = None,
) -> RunOutcome:
    """Like `run_recipe`, for a recipe that is already loaded; its text may differ from the file's.

    `tools` resolves exact versions instead of the recipe's lock or this home's earlier resolutions.
    """
    with in_use(options.home.store), _fleet(options) as fleet:
        absent = (
            absent_parts(loaded.recipe, options.home, options.toolchain, may_resolve=True)
            if fleet is None
            else fleet.absent_parts(loaded.recipe)
        )
        stages = plan_stages(loaded.recipe, options.only, frozenset(absent))
        work = RunWork(
            options,
            loaded,
            stages,
            Store(options.home.store),
            absent,
            listener or SilentListener(),
            lineage,
            fleet,
        )
        return _run_tracked(work, tools)


def _fleet(options: RunOptions) -> "contextlib.AbstractContextManager[Fleet | None]":
    if options.scheduler is None and options.shared_store is None:
        return contextlib.nullcontext()
    from convkit.host.fleet.run_fleet import fleet_of  # noqa: PLC0415 - most runs have no fleet

    return fleet_of(options.scheduler, options.shared_store, options.home)


def _run_tracked(work: RunWork, tools: Resolver | None) -> RunOutcome:
    """Return the earlier run with this result, or run and log."""
    options = work.options
    # An earlier run's record does not say what has been withdrawn since.
    recorded = work.lineage is None or not work.lineage.withdrawn
    known = None
    if recorded and not options.force and not options.rerun:
        known_tools = tools or work.tools(may_resolve=False)
        known = gather(work.loaded, work.stages, options.home, options.toolchain, known_tools)
        settled = find_settled(work.loaded, work.stages, known.facts, work.store)
        if settled is not None:
            outcome = RunOutcome(read_record(settled), settled, up_to_date=True)
            owed = options.track and work.store.is_unlogged(settled)
            return _log(outcome, _prepare_in_background(options), work) if owed else outcome
    # Importing and opening MLflow takes seconds, or half a minute on a busy machine. This happens
    # while the stages run, in a thread that need not be awaited after Ctrl-C.
    tracker = _prepare_in_background(options) if options.track else None
    from convkit.host.run.run_execution import run_stages  # noqa: PLC0415 - only if a stage must run

    outcome = run_stages(work, tools or work.tools(may_resolve=True), known)
    return outcome if tracker is None else _log(outcome, tracker, work)


def _prepare_in_background(options: RunOptions) -> "concurrent.futures.Future[Tracker]":
    """Open MLflow in a daemon thread: an executor's threads would be joined when the process
    ends.
    """
    future: concurrent.futures.Future[Tracker] = concurrent.futures.Future()

    def work() -> None:
        try:
            future.set_result(_prepare_tracker(options))
        except BaseException as error:  # noqa: BLE001 - raised again when the result is requested
            future.set_exception(error)

    threading.Thread(target=work, name="track", daemon=True).start()
    return future


def find_settled(
    loaded: LoadedRecipe, stages: tuple[Stage, ...], facts: Facts, store: Store
) -> Path | None:
    """Return the folder of an earlier run with this exact result, or None if a stage must run."""
    records = settled_records(loaded, stages, facts, store)
    if len(records) < len(stages):
        return None
    keys = {name: record.key for name, record in records.items()}
    key = run_key(loaded.recipe, keys, day_of(time.time()))
    code = code_digests(store.root)
    folder = store.settled_run(key, code.own())
    code.remember()
    return folder if folder is not None and is_intact(folder, store.digests) else None


def settled_records(
    loaded: LoadedRecipe, stages: tuple[Stage, ...], facts: Facts, store: Store
) -> dict[str, StageRecord]:
    """Return the records of the stages that are hits, by stage id."""
    records: dict[str, StageRecord] = {}
    for stage in stages:
        if not all(name in records for name in stage.needs):
            continue
        inputs = {name: records[name].artifact for name in stage.needs}
        parts = ingredients(stage, loaded.recipe, facts, inputs)
        record = store.first_record(possible_keys(parts)) if parts is not None else None
        if record is not None:
            records[stage.id] = record
    return records


def _prepare_tracker(options: RunOptions) -> "Tracker":
    from convkit.host.track.run_tracker import prepare  # noqa: PLC0415 - MLflow takes seconds to import

    return prepare(None, options.home.root)


def _log(
    outcome: RunOutcome, tracker: "concurrent.futures.Future[Tracker]", work: RunWork
) -> RunOutcome:
    """Log a run to MLflow. The result is already on disk, so nothing is lost if this fails: the
    next run that is up to date tries again.
    """
    try:
        with _announced("mlflow", "logging the run", work.listener):
            tracked = tracker.result().log(outcome.record, outcome.folder)
    except TrackingError as error:
        return dataclasses.replace(outcome, untracked=str(error))
    work.store.was_logged(outcome.folder)
    return dataclasses.replace(outcome, tracked=tracked.link)


@contextlib.contextmanager
def _announced(name: str, doing: str, listener: Listener) -> Iterator[None]:
    """Show the work after the stages as if it were a stage, if it lasts longer than a moment."""
    started = time.monotonic()
    shown = threading.Event()

    def show() -> None:
        shown.set()
        listener.stage_started(name, doing)

    timer = threading.Timer(_PATIENCE_SECONDS, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            listener.stage_finished(name, "done", time.monotonic() - started)

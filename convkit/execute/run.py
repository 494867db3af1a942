"""`convkit run`: from a recipe's file to a finished run on disk."""

import concurrent.futures
import dataclasses
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import convkit
from convkit.codec import decode
from convkit.errors import ConvkitError, TrackingError, storage_error
from convkit.execute.events import Listener, Silence
from convkit.execute.executor import execute
from convkit.execute.facts import Surroundings, ToolchainKind, absent_devices, describe_host, gather
from convkit.execute.fleet.fleet import Fleet, fleet_of
from convkit.execute.stage_runner import Settled, StageRunner
from convkit.home import Home
from convkit.plan.stages import Facts, Stage, contract_of, ingredients, plan_stages, stage_key
from convkit.recipe.loading import LoadedRecipe, load_recipe
from convkit.record import FORMAT, RepairStep, RunRecord, TargetReport
from convkit.store.digests import digest_json, write_json
from convkit.store.store import StageRecord, Store
from convkit.verdict.targets import Finished, exit_code, gravest, judge_target

if TYPE_CHECKING:
    from convkit.track.tracker import Tracker


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """What the command line says of a run."""

    recipe: Path
    home: Home
    only: tuple[str, ...] = ()
    toolchain: ToolchainKind = "isolated"
    jobs: int = 2
    force: bool = False
    track: bool = True
    command: tuple[str, ...] = ()
    scheduler: str | None = None  # stages run on the workers of this Dask cluster,
    shared_store: str | None = None  # which read and write the store at this URL


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """A run's record and folder. `untracked` says why MLflow did not take it, `up_to_date` that nothing ran."""

    record: RunRecord
    folder: Path
    up_to_date: bool = False
    tracked: str | None = None
    untracked: str | None = None


@dataclasses.dataclass(frozen=True)
class Lineage:
    """The run that another one repairs, and the remedies that it applies; the last have no outcome yet."""

    repaired_from: str
    steps: tuple[RepairStep, ...]

    def ended_as(self, targets: Sequence[TargetReport]) -> tuple[RepairStep, ...]:
        """Return the steps with what came of the last ones."""
        outcome = outcome_text(targets)
        return tuple(dataclasses.replace(step, outcome=step.outcome or outcome) for step in self.steps)


def outcome_text(targets: Sequence[TargetReport]) -> str:
    """Return how targets stand, in a few words: the first one that is wrong with its headline."""
    wrong = next((target for target in targets if target.status in ("failed", "broken")), None)
    return f"{wrong.name} {wrong.status}: {wrong.headline}" if wrong else gravest([t.status for t in targets])


def run_recipe(options: RunOptions, listener: Listener | None = None) -> RunOutcome:
    """Run a recipe, or return the run that settled it before.

    Raises RecipeError and other ConvkitErrors before any stage starts; KeyboardInterrupt after stopping the workers.
    """
    return run_loaded(options, load_recipe(options.recipe), listener)


def run_loaded(
    options: RunOptions, loaded: LoadedRecipe, listener: Listener | None = None, lineage: Lineage | None = None
) -> RunOutcome:
    """Run a recipe that has been read, as `run_recipe`; its text may be another than the file's."""
    with fleet_of(options.scheduler, options.shared_store, options.home) as fleet:
        return _run_on(fleet, options, loaded, listener or Silence(), lineage)


def _run_on(
    fleet: Fleet | None, options: RunOptions, loaded: LoadedRecipe, listener: Listener, lineage: Lineage | None
) -> RunOutcome:
    absent = absent_devices(loaded.recipe) if fleet is None else fleet.absent_devices(loaded.recipe)
    stages = plan_stages(loaded.recipe, options.only, absent)
    store = Store(options.home.store)
    if not options.force:
        known = gather(loaded, stages, options.home, options.toolchain, may_resolve=False)
        settled = find_settled(loaded, stages, known.facts, store)
        if settled is not None:
            return RunOutcome(read_record(settled), settled, up_to_date=True)
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="track") as tracking:
        # MLflow takes two seconds to import and open: that goes on while the stages run.
        tracker = tracking.submit(_prepare_tracker, options) if options.track else None
        outcome = _run(options, loaded, stages, store, listener, lineage, fleet)
        return _log(outcome, tracker)


def _run(
    options: RunOptions,
    loaded: LoadedRecipe,
    stages: tuple[Stage, ...],
    store: Store,
    listener: Listener,
    lineage: Lineage | None,
    fleet: Fleet | None,
) -> RunOutcome:
    started = time.time()
    store.sweep()
    for stage in stages:
        listener.stage_waiting(stage.id)
    surroundings = gather(loaded, stages, options.home, options.toolchain, may_resolve=True)
    cancelled = threading.Event()
    runner = StageRunner(loaded, surroundings, options.home, store, listener, cancelled, options.force)
    if fleet is None:
        settled = execute(stages, runner, listener, cancelled, jobs=options.jobs)
    else:
        settler = fleet.settler(runner, listener)
        settled = execute(stages, settler, listener, cancelled, jobs=fleet.jobs(options.jobs))
    return _finish(options, loaded, stages, store, surroundings, settled, started, lineage)


def find_settled(loaded: LoadedRecipe, stages: tuple[Stage, ...], facts: Facts, store: Store) -> Path | None:
    """Return the folder of the run that settled a recipe as it stands now, or None when some stage must run."""
    records = settled_records(loaded, stages, facts, store)
    if len(records) < len(stages):
        return None
    keys = {name: record.key for name, record in records.items()}
    return store.settled_run(run_key(loaded, keys))


def settled_records(
    loaded: LoadedRecipe, stages: tuple[Stage, ...], facts: Facts, store: Store
) -> dict[str, StageRecord]:
    """Return the records of the stages that are hits, by stage id."""
    records: dict[str, StageRecord] = {}
    for stage in stages:
        parts = ingredients(stage, loaded.recipe, facts)
        if parts is None or not all(name in records for name in stage.needs):
            continue
        inputs = {name: records[name].artifact for name in stage.needs}
        record = store.record(stage_key(stage, parts, inputs))
        if record is not None:
            records[stage.id] = record
    return records


def run_key(loaded: LoadedRecipe, stage_keys: Mapping[str, str]) -> str:
    """Return the digest of all that decides a run's outcome: its stages, and the limits they are judged by."""
    dump = loaded.recipe.model_dump(mode="json")
    judged = {name: dump[name] for name in ("name", "description", "verify", "targets", "track")}
    return digest_json([FORMAT, dict(stage_keys), judged])


def _finish(
    options: RunOptions,
    loaded: LoadedRecipe,
    stages: tuple[Stage, ...],
    store: Store,
    surroundings: Surroundings,
    settled: Mapping[str, Settled],
    started: float,
    lineage: Lineage | None,
) -> RunOutcome:
    recipe = loaded.recipe
    finished = {name: Finished(stage.report, stage.result) for name, stage in settled.items()}
    names = list(dict.fromkeys(stage.target for stage in stages if stage.kind == "verify" and stage.target))
    targets = tuple(judge_target(name, recipe, finished) for name in names)
    status = gravest([target.status for target in targets])
    reports = tuple(
        dataclasses.replace(settled[stage.id].report, log=f"logs/{_file_name(stage.id)}.log") for stage in stages
    )
    key = run_key(loaded, {report.id: report.key for report in reports})
    record = RunRecord(
        format=FORMAT,
        convkit=convkit.__version__,
        id=time.strftime("%Y%m%d-%H%M%S-", time.gmtime(started)) + secrets.token_hex(2),
        key=key,
        recipe=recipe.name,
        recipe_file=os.path.relpath(loaded.path),
        recipe_text=loaded.text,
        recipe_digest=loaded.digest,
        description=recipe.description,
        experiment=recipe.track.experiment or f"convkit/{recipe.name}",
        contract=contract_of(recipe),
        command=options.command,
        toolchain=surroundings.facts.toolchain,
        host=describe_host(surroundings.facts.toolchain) | ({"fleet": options.scheduler} if options.scheduler else {}),
        started=started,
        ended=time.time(),
        status=status,
        exit_code=exit_code(status),
        stages=reports,
        targets=targets,
        repaired_from=lineage.repaired_from if lineage else None,
        repair=lineage.ended_as(targets) if lineage else (),
    )
    locks = _locks(stages, surroundings)
    folder = _write_folder(record, settled, locks, store, options.home)
    if all(report.status in ("hit", "done") for report in reports) and all(
        store.record(report.key) is not None for report in reports
    ):
        store.settle_run(key, folder)
    return RunOutcome(record, folder)


def _locks(stages: tuple[Stage, ...], surroundings: Surroundings) -> dict[str, str]:
    """Return the exact versions of each stage's environment, as requirements files by stage id."""
    resolutions = surroundings.resolutions
    return {stage.id: resolutions[stage.environment].text for stage in stages if stage.environment in resolutions}


def _write_folder(
    record: RunRecord, settled: Mapping[str, Settled], locks: Mapping[str, str], store: Store, home: Home
) -> Path:
    """Write a run's folder aside and move it into place, whole."""
    from convkit.report.render import write_report  # noqa: PLC0415 - the template engine, only when a run has finished

    folder = home.runs_of(record.recipe) / record.id
    try:
        with store.staging() as staging:
            whole = staging / "run"
            (whole / "logs").mkdir(parents=True)
            for name, stage in settled.items():
                (whole / "logs" / f"{_file_name(name)}.log").write_text(stage.log, encoding="utf-8")
            for name, text in locks.items():
                (whole / "locks").mkdir(exist_ok=True)
                (whole / "locks" / f"{_file_name(name)}.txt").write_text(text, encoding="utf-8")
            (whole / "recipe.yaml").write_text(record.recipe_text, encoding="utf-8")
            for target in record.targets:
                built = settled[f"build:{target.name}"].report
                if built.artifact is not None:
                    store.link_into(built.artifact, whole / "models" / target.name)
            write_report(record, whole)
            write_json(whole / "result.json", record)
            folder.parent.mkdir(parents=True, exist_ok=True)
            whole.rename(folder)
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def _file_name(stage: str) -> str:
    return "".join(character if character.isalnum() or character in "-_.=<>~!*" else "-" for character in stage)


def read_record(folder: Path) -> RunRecord:
    """Return a finished run's record; raises ConvkitError where it cannot be read."""
    try:
        value = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        if value.get("format") != FORMAT:
            raise ConvkitError(f"{folder}: result.json has format {value.get('format')!r}; this convkit reads {FORMAT}")
        return decode(RunRecord, value)
    except (OSError, ValueError, AttributeError) as error:
        raise ConvkitError(f"{folder}: no readable result.json: {error}") from error


def _prepare_tracker(options: RunOptions) -> "Tracker":
    from convkit.track.tracker import prepare  # noqa: PLC0415 - MLflow takes seconds to import

    return prepare(None, options.home.root)


def _log(outcome: RunOutcome, tracker: "concurrent.futures.Future[Tracker] | None") -> RunOutcome:
    """Log a run to MLflow. Its result is on disk: whatever MLflow does, nothing is lost."""
    if tracker is None:
        return outcome
    try:
        tracked = tracker.result().log(outcome.record, outcome.folder)
    except TrackingError as error:
        return dataclasses.replace(outcome, untracked=str(error))
    return dataclasses.replace(outcome, tracked=tracked.link)

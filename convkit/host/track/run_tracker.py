# ruff: noqa: PLC0415 - importing MLflow takes over a second, so functions import it when needed
"""Logs runs to MLflow: `prepare` opens the tracking store, `Tracker.log` writes a run."""

import contextlib
import dataclasses
import getpass
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from filelock import BaseFileLock

from convkit.host.record.bench_record import BenchRecord
from convkit.host.record.processor_record import RecordedProcessor, processor_of
from convkit.host.record.run_record import RunRecord, TargetStatus
from convkit.host.store.process_locks import file_lock
from convkit.host.track.bench_metrics import bench_points
from convkit.host.track.loadable_models import describe_models, loadable_folder
from convkit.host.track.mlflow_batches import batches
from convkit.host.track.mlflow_client import first_contact, import_mlflow
from convkit.host.track.mlflow_database import create_database, schema_revisions
from convkit.host.track.mlflow_limits import TAG_LENGTH, clipped, entry_name, model_name
from convkit.host.track.run_artifacts import (
    Placed,
    local_folder,
    log_placements,
    log_run_files,
    place_models,
)
from convkit.host.track.run_columns import VIEW_TAG, runs_page, view_state
from convkit.host.track.run_description import experiment_note, model_note
from convkit.host.track.run_entries import Entry, MetricPoint, Table, child_entries, parent_entry
from convkit.host.track.run_inputs import log_inputs
from convkit.host.track.run_tags import identity_tags
from convkit.host.track.tracking_location import (
    Location,
    check_database,
    find_location,
    tracking_error,
)
from convkit.protocol.errors import TrackingError

# Set last. A run without it was interrupted while logging, and is logged again.
_COMPLETE = "convkit.logged"
_TABLE_FILE = "cases.json"
# Without the first tag, MLflow's UI shows an experiment as chat traces.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development", VIEW_TAG: view_state()}
# Only of a new experiment: people may write their own.
_NOTE = "mlflow.note.content"


@dataclasses.dataclass(frozen=True)
class Tracked:
    """A run's location in MLflow. `uri` has no password; `link` is None for a database."""

    parent_run_id: str
    experiment_id: str
    uri: str
    link: str | None


def prepare(tracking_uri: str | None, home: Path) -> "Tracker":
    """Open the tracking store, creating the database if needed, and return a Tracker.

    The store is `tracking_uri`, else MLFLOW_TRACKING_URI, else `home`/mlflow.db. Takes one to four
    seconds, most of them importing MLflow; safe to call in a thread while stages run. Raises
    TrackingError: a server that does not answer within ten seconds, a database that is damaged or
    has a different schema (it is left untouched).
    """
    location = find_location(tracking_uri, home)
    with _reported(location):
        import_mlflow(database=not location.is_server)
        from mlflow import MlflowClient

        home.mkdir(parents=True, exist_ok=True)
        with _lock(home), first_contact():
            if location.database is not None and not check_database(location, schema_revisions):
                create_database(location, home)
            client = MlflowClient(tracking_uri=location.uri)
            client.search_experiments(max_results=1)  # connects on first use
    return Tracker(client, location, home)


@dataclasses.dataclass(frozen=True)
class Tracker:
    """An opened tracking store."""

    client: Any
    location: Location
    home: Path

    def log(self, record: RunRecord, folder: Path) -> Tracked:
        """Log a run: an entry for the run, one per stage and verification, its files. `folder` is
        the run's folder.

        A run that was logged before is found by its id and not logged twice. Raises TrackingError.
        """
        with _reported(self.location), _lock(self.home):
            experiment_id = self._experiment(record.experiment, record.recipe)
            parent_id = self._logged_before(experiment_id, record.id)
            if parent_id is None:
                parent_id = self._log(experiment_id, record, folder)
        link = self.location.run_link(experiment_id, parent_id)
        return Tracked(parent_id, experiment_id, self.location.shown, link)

    def log_bench(self, record: RunRecord, folder: Path, bench: BenchRecord) -> None:
        """Add a benchmark's figures to the entry of its run, which is logged first if necessary.

        Raises TrackingError.
        """
        tracked = self.log(record, folder)
        from mlflow.entities import Metric

        moment = _milliseconds(bench.ended)
        points = [
            dataclasses.replace(point, name=entry_name(point.name)) for point in bench_points(bench)
        ]
        with _reported(self.location), _lock(self.home):
            for batch in batches({}, {}, points):
                metrics = [
                    Metric(each.name, each.value, moment, each.step) for each in batch.points
                ]
                self.client.log_batch(tracked.parent_run_id, metrics=metrics)

    def earlier_runs(self, record: RunRecord, most: int) -> list[Any]:
        """Return MLflow's entries of a recipe's earlier runs on processors that compute as this
        one, newest first.
        """
        with _reported(self.location):
            experiment = self.client.get_experiment_by_name(record.experiment)
            if experiment is None:
                return []
            tags = {"role": "run", "recipe": record.recipe}
            wanted = " and ".join(
                f"tags.`convkit.{name}` = '{_quoted(value)}'" for name, value in tags.items()
            )
            found = self.client.search_runs(
                [experiment.experiment_id],
                wanted,
                max_results=most + 1,
                order_by=["attributes.start_time DESC"],
            )
        mine = processor_of(record.host)
        return [
            entry
            for entry in found
            if entry.data.tags.get("convkit.run") != record.id
            and _ran_on(entry.data.tags).computes_as(mine)
        ][:most]

    def accept(self, record: RunRecord, folder: Path, alias: str) -> str:
        """Set an alias for a run in MLflow's registry, under a model with the recipe's name; return
        the model's version.

        Logs the run first if necessary. Raises TrackingError.
        """
        tracked = self.log(record, folder)
        from mlflow.exceptions import MlflowException

        with _reported(self.location), _lock(self.home):
            try:
                self.client.create_registered_model(record.recipe, tags={"convkit": "baseline"})
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            source = self.client.get_run(tracked.parent_run_id).info.artifact_uri
            inside = loadable_folder(self.client, tracked.parent_run_id, record)
            if inside is not None:
                source = f"{source}/{inside}"
            tags = {"convkit.run": record.id, **identity_tags(record, folder)}
            made = self.client.create_model_version(
                record.recipe, source, tracked.parent_run_id, tags=tags
            )
            self.client.set_registered_model_alias(record.recipe, alias, made.version)
        return str(made.version)

    def aliased(self, recipe: str, alias: str) -> str | None:
        """Return the id of the run that has an alias under a recipe's name, or None; raises
        TrackingError.
        """
        from mlflow.exceptions import MlflowException

        with _reported(self.location):
            try:
                version = self.client.get_model_version_by_alias(recipe, alias)
            except MlflowException as error:
                if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                    return None
                raise
        return str(version.tags.get("convkit.run", version.run_id))

    def registered(self, name: str, *, alias: str | None, version: str | None) -> tuple[str, str]:
        """Return a registered model's version, and where its files are; raises TrackingError."""
        with _reported(self.location):
            if version is None:
                version = str(self.client.get_model_version_by_alias(name, alias).version)
            return version, str(self.client.get_model_version_download_uri(name, version))

    def download(self, uri: str, place: Path) -> Path:
        """Download a folder of artifacts to a place, whole or not at all; return the place."""
        import tempfile

        import mlflow.artifacts

        with _reported(self.location):
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as staging:
                found = mlflow.artifacts.download_artifacts(
                    uri, dst_path=staging, tracking_uri=self.location.uri
                )
                Path(found).replace(place)
        return place

    def unalias(self, recipe: str, alias: str) -> None:
        """Remove an alias in MLflow's registry, if it is there; raises TrackingError."""
        if self.aliased(recipe, alias) is not None:
            with _reported(self.location):
                self.client.delete_registered_model_alias(recipe, alias)

    def _experiment(self, name: str, recipe: str) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            folder = self.location.artifacts
            artifacts = (
                None if folder is None else (folder / re.sub(r"[^\w.-]+", "-", name)).as_uri()
            )
            made = str(
                self.client.create_experiment(
                    name, artifact_location=artifacts, tags=_EXPERIMENT_TAGS
                )
            )
            self.client.set_experiment_tag(made, _NOTE, experiment_note(recipe, runs_page(made)))
            return made
        if experiment.lifecycle_stage != "active":
            raise tracking_error(
                self.location,
                f"the experiment {name!r} was deleted. Restore it "
                f"(mlflow experiments restore --experiment-id {experiment.experiment_id}), "
                "or choose another one with track.experiment in the recipe.",
            )
        for tag, value in _EXPERIMENT_TAGS.items():
            if experiment.tags.get(tag) != value:  # of an earlier release, or made by hand
                self.client.set_experiment_tag(experiment.experiment_id, tag, value)
        return str(experiment.experiment_id)

    def _logged_before(self, experiment_id: str, run: str) -> str | None:
        """Return the run's entry if it is complete; delete the leftovers of interrupted logging."""
        entries = self.client.search_runs(
            [experiment_id], filter_string=f"tags.`convkit.run` = '{_quoted(run)}'"
        )
        for entry in entries:
            if entry.data.tags.get("convkit.role") == "run" and _COMPLETE in entry.data.tags:
                return str(entry.info.run_id)
        for entry in entries:
            self.client.delete_run(entry.info.run_id)
        return None

    def _log(self, experiment_id: str, record: RunRecord, folder: Path) -> str:
        parent = parent_entry(record)
        user = {"mlflow.user": _user()}
        run = self._create(experiment_id, parent, user)
        run_id = str(run.info.run_id)
        log_run_files(self.client, run_id, folder)
        # A server's folder may be on another machine, even if the same path exists here.
        artifact_folder = None if self.location.is_server else local_folder(run.info.artifact_uri)
        placed = place_models(self.client, run_id, artifact_folder, record, folder)
        identity = identity_tags(record, folder)
        sealed = identity.get("convkit.provenance", "")
        describe_models(self.client, run_id, record, placed, sealed)
        models = self._log_models(experiment_id, run_id, record, placed)
        log_placements(self.client, run_id, placed)
        log_inputs(self.client, experiment_id, run_id, record, folder)
        self._write(run_id, parent, models, identity)
        for child in child_entries(record):
            self._log_child(experiment_id, child, folder, {**user, "mlflow.parentRunId": run_id})
        self.client.set_tag(run_id, _COMPLETE, "complete")
        self._end(run_id, parent)
        return run_id

    def _log_child(
        self, experiment_id: str, child: Entry, folder: Path, tags: dict[str, str]
    ) -> None:
        run_id = str(self._create(experiment_id, child, tags).info.run_id)
        extra: dict[str, str] = {}
        if child.table is not None:
            self.client.log_text(run_id, _table_text(child.table), _TABLE_FILE)
            extra["mlflow.loggedArtifacts"] = json.dumps([{"path": _TABLE_FILE, "type": "table"}])
        if child.log is not None and (folder / child.log).is_file():
            self.client.log_artifact(run_id, str(folder / child.log))
        self._write(run_id, child, {}, extra)
        self._end(run_id, child)

    def _create(self, experiment_id: str, entry: Entry, tags: dict[str, str]) -> Any:  # noqa: ANN401 - MLflow's Run
        # Set the tags that identify a run at creation, so that an entry left by a killed convkit
        # can be found.
        found_by = {name: entry.tags[name] for name in ("convkit.run", "convkit.role")}
        started = _milliseconds(entry.started)
        return self.client.create_run(
            experiment_id, started, {**found_by, **tags}, run_name=entry.name
        )

    def _write(
        self, run_id: str, entry: Entry, models: dict[str, str], extra: dict[str, str]
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        moment = _milliseconds(entry.ended)

        def metric(point: MetricPoint) -> Any:  # noqa: ANN401 - MLflow's Metric
            model = models.get(point.target) if point.target is not None else None
            return Metric(point.name, float(point.value), moment, point.step, model_id=model)

        tags = {
            **entry.tags,
            **{entry_name(name): clipped(value, TAG_LENGTH) for name, value in extra.items()},
        }
        for batch in batches(entry.params, tags, entry.points):
            self.client.log_batch(
                run_id,
                metrics=[metric(point) for point in batch.points],
                params=[Param(name, value) for name, value in batch.params],
                tags=[RunTag(name, value) for name, value in batch.tags],
            )

    def _end(self, run_id: str, entry: Entry) -> None:
        self.client.set_terminated(run_id, entry.status, _milliseconds(entry.ended))

    def _log_models(
        self, experiment_id: str, run_id: str, record: RunRecord, placed: list[Placed]
    ) -> dict[str, str]:
        """Register each built model without moving its files; return model ids by target."""
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus
        from mlflow.exceptions import MlflowException

        targets = {target.name: target for target in record.targets}
        models: dict[str, str] = {}
        for one in placed:
            target = targets[one.target]
            tags = {
                "mlflow.model.isExternal": "true",
                "convkit.run": record.id,
                "convkit.status": target.status,
                "convkit.path": one.path,
                _NOTE: clipped(model_note(record, target), TAG_LENGTH),
            }
            params = {
                "runtime": target.runtime,
                "device": target.device,
                "precision": target.precision,
            }
            name = model_name(f"{record.recipe}-{target.name}")
            try:
                model = self.client.create_logged_model(
                    experiment_id, name, run_id, tags, params, target.runtime
                )
            except MlflowException as error:
                if (
                    error.error_code == "ENDPOINT_NOT_FOUND"
                ):  # a server older than MLflow 3: the run's tags contain the same information
                    return {}
                raise
            if (done := _model_status(target.status)) is not None:
                self.client.finalize_logged_model(model.model_id, getattr(LoggedModelStatus, done))
            models[target.name] = str(model.model_id)
        if models:
            self.client.log_outputs(
                run_id, [LoggedModelOutput(model_id, 0) for model_id in models.values()]
            )
        return models


@contextlib.contextmanager
def _reported(location: Location) -> Iterator[None]:
    """Convert exceptions of MLflow and its libraries into a TrackingError."""
    try:
        yield
    except TrackingError:
        raise
    except ImportError as error:  # MLflow itself, or a database driver
        raise tracking_error(location, error) from error
    except OSError as error:  # disk, network (requests' errors too), lock
        raise tracking_error(location, error) from error
    except Exception as error:
        if _is_foreign(error):
            raise tracking_error(location, error) from error
        raise


def _is_foreign(error: Exception) -> bool:
    """Return whether an error comes from MLflow or its database layer. Checked by name, because
    neither may be imported yet.
    """
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(packages & {"mlflow", "sqlalchemy", "alembic", "sqlite3", "requests", "urllib3"})


def _lock(home: Path) -> BaseFileLock:
    """Lock out other processes: two would race to create a database or to log the same run."""
    return file_lock(home / "mlflow.lock", timeout=120)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _quoted(text: str) -> str:
    """Check text for an MLflow search, which has no escape for quotes; run ids have none."""
    return text.replace("'", "")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # this user id has no name, as in many containers
        return "unknown"


def _table_text(table: Table) -> str:
    return json.dumps({"columns": table.columns, "data": table.rows})


def _ran_on(tags: Mapping[str, str]) -> RecordedProcessor:
    """Return the processor of a logged run."""
    prefix = "convkit.host."
    return processor_of(
        {name.removeprefix(prefix): each for name, each in tags.items() if name.startswith(prefix)}
    )


def _model_status(status: TargetStatus) -> Literal["READY", "FAILED"] | None:
    """Return how MLflow's list of models shows a target's; None leaves it pending, because nothing
    was proven and nothing failed.
    """
    match status:
        case "verified":
            return "READY"
        case "failed" | "waived" | "broken":
            return "FAILED"
        case "skipped" | "unproven":
            return None

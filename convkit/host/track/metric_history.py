"""Metrics of a recipe's earlier runs in MLflow, by name, newest first."""

from collections.abc import Mapping
from pathlib import Path

from convkit.host.record.run_record import RunRecord
from convkit.host.track.run_columns import statuses_in
from convkit.host.track.run_entries import parent_entry
from convkit.host.track.run_tracker import prepare

# Enough for years of nightly runs; MLflow returns them in one page.
_MOST_RUNS = 2000


def figures_of(record: RunRecord) -> dict[str, float]:
    """Return a run's metrics under their MLflow names."""
    return {point.name: point.value for point in parent_entry(record).points}


def logged_figures(
    record: RunRecord, home: Path, command: str
) -> Mapping[str, Mapping[str, float]]:
    """Return the figures of earlier runs by run id, newest first; raises TrackingError.

    Covers runs of the same recipe, on the same kind of processor, with a command line that starts
    with `command`. Only verified and waived targets count: a failed run's figures are no baseline.
    """
    tracker = prepare(None, home)
    found: dict[str, dict[str, float]] = {}
    for entry in tracker.earlier_runs(record, _MOST_RUNS):
        tags = entry.data.tags
        statuses = statuses_in(tags.get("convkit.targets", ""))
        if tags.get("mlflow.source.name", "").startswith(command):
            found[tags["convkit.run"]] = {
                name: float(value)
                for name, value in entry.data.metrics.items()
                if statuses.get(name.rpartition("/")[0]) in ("verified", "waived")
            }
    return found


def accepted_in_mlflow(recipe: str, home: Path, alias: str) -> str | None:
    """Return the id of the run that has an alias in MLflow's registry, or None; raises
    TrackingError.
    """
    return prepare(None, home).aliased(recipe, alias)

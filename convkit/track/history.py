"""Metrics of a recipe's earlier runs in MLflow, by name, newest first."""

from collections.abc import Mapping
from pathlib import Path

from convkit.record.model import RunRecord
from convkit.track.entries import parent_entry
from convkit.track.tracker import prepare

_MOST_RUNS = 30


def figures_of(record: RunRecord) -> dict[str, float]:
    """Return a run's metrics under their MLflow names."""
    return {point.name: point.value for point in parent_entry(record).points}


def metric_history(record: RunRecord, home: Path) -> Mapping[str, list[float]]:
    """Return the metrics of a recipe's earlier runs on the same kind of CPU; raises TrackingError.

    Only verified targets count: the metrics of a failed one are not a baseline.
    """
    tracker = prepare(None, home)
    found: dict[str, list[float]] = {}
    for entry in tracker.earlier_runs(record, _MOST_RUNS):
        for name, value in entry.data.metrics.items():
            target = name.rpartition("/")[0]
            if entry.data.tags.get(f"convkit.target.{target}") == "verified":
                found.setdefault(name, []).append(float(value))
    return found

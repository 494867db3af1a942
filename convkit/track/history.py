"""What MLflow knows of a recipe's earlier runs: their figures by name, newest first."""

from collections.abc import Mapping
from pathlib import Path

from convkit.record.model import RunRecord
from convkit.track.entries import parent_entry
from convkit.track.tracker import prepare

_MOST_RUNS = 30


def figures_of(record: RunRecord) -> dict[str, float]:
    """Return a run's figures under the names that MLflow has for them."""
    return {point.name: point.value for point in parent_entry(record).points}


def metric_history(record: RunRecord, home: Path) -> Mapping[str, list[float]]:
    """Return the figures of earlier runs of a recipe on a processor like this one; raises
    TrackingError.

    Only targets that were verified count: a figure of a failed run is no measure.
    """
    tracker = prepare(None, home)
    found: dict[str, list[float]] = {}
    for entry in tracker.earlier_runs(record, _MOST_RUNS):
        for name, value in entry.data.metrics.items():
            target = name.rpartition("/")[0]
            if entry.data.tags.get(f"convkit.target.{target}") == "verified":
                found.setdefault(name, []).append(float(value))
    return found

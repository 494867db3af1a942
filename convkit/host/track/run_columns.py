"""How MLflow shows a list of convkit's runs: its columns, what is in them, and which runs. Pure.

MLflow's UI keeps columns in the browser. What it offers to share is a view, in a tag of the
experiment: an address that names it (`viewStateShareKey`) opens the list as the view says (MLflow
2.5 and later).
"""

import json

from convkit.host.record.headroom import worst_comparison
from convkit.host.record.run_record import RunRecord
from convkit.host.track.tracking_location import RUNS_VIEW, SHARED_VIEW

VIEW_TAG = f"mlflow.sharedViewState.{SHARED_VIEW}"
_COLUMNS = (
    *("tags.`verdict`", "tags.`worst_error`"),
    *("metrics.`error_of_limit`", "metrics.`size_mib`", "metrics.`latency_ms`"),
)
# Other stages than verifications have none of these columns.
_FILTER = "tags.`convkit.role` != 'stage'"


def view_state() -> str:
    """Return the view as MLflow's UI writes it."""
    state = {"searchFilter": _FILTER, "selectedColumns": _COLUMNS}
    return json.dumps(state)


def runs_page(experiment_id: str) -> str:
    """Return the address of an experiment's runs in these columns, within MLflow's UI."""
    return f"#/experiments/{experiment_id}/runs{RUNS_VIEW}"


def targets_text(record: RunRecord) -> str:
    """Return the targets with their status: `ort-cpu verified, ort-int8 failed`."""
    return ", ".join(f"{target.name} {target.status}" for target in record.targets)


def statuses_in(text: str) -> dict[str, str]:
    """Return the targets' status from what `targets_text` wrote."""
    pairs = (each.rpartition(" ") for each in text.split(", "))
    return {name: status for name, _, status in pairs}


def verdict_text(record: RunRecord) -> str:
    """Return the targets by status, the worst first, each with the finding that leads."""
    parts = []
    for status in ("broken", "failed", "unproven", "waived", "skipped", "verified"):
        named = [
            target.name + (f" ({target.leading.code})" if target.leading is not None else "")
            for target in record.targets
            if target.status == status
        ]
        parts += [f"{status}: {', '.join(named)}"] if named else []
    return "; ".join(parts)


def worst_error_text(record: RunRecord) -> str:
    """Return the figure furthest beyond its limit, or closest to it, with its target."""
    found = [
        (worst, target.name)
        for target in record.targets
        for verification in target.verifications
        if (worst := worst_comparison(verification.cases)) is not None
    ]
    if not found:
        return ""
    worst, name = max(found, key=lambda pair: (not pair[0].passed, pair[0].share))
    return f"{name}: {worst}"

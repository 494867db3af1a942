"""Which runs need their artifacts in the store, and why.

A run's folder holds its own copies of the built models, its record and its provenance; it is never
touched, so that the chain of runs stays whole. The store also holds what a run was made from:
the exported graph, the original's outputs, the precision search. That is what an old run that
nothing protects can give up.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.checks.recorded_inputs import recipe_path
from convkit.host.audit.past_runs.later_records import beside
from convkit.host.audit.signing.signatures import SIGNATURES
from convkit.host.home import Home
from convkit.host.nightly.baseline import baseline_file, read_baseline
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_folder import read_record
from convkit.host.store.garbage_collection import Freed, Needed, collect, exclusive_use
from convkit.protocol.errors import ConvkitError, UsageError

_DAY_SECONDS = 86400.0


@dataclasses.dataclass(frozen=True)
class Collected:
    """What a collection freed. `given_up` are the runs whose artifacts went, `protected` old runs
    that kept theirs, with the reasons.
    """

    freed: tuple[Freed, ...]
    runs: int
    given_up: tuple[str, ...]
    protected: dict[str, tuple[str, ...]]


def collect_garbage(
    home: Home, *, older_than: float | None = None, dry_run: bool = False
) -> Collected:
    """Remove from a home's store what no run needs; with `older_than` (days), also what only older
    runs need that nothing protects.

    Raises StoreError if the store is in use, UsageError if a run cannot be read.
    """
    if not home.store.is_dir():
        return Collected((), 0, (), {})
    with exclusive_use(home.store):
        records = {folder: _record(folder) for folder in home.run_folders()}
        newest = {record.recipe: folder for folder, record in reversed(records.items())}
        limit = None if older_than is None else time.time() - older_than * _DAY_SECONDS
        kept: list[RunRecord] = []
        given_up: list[str] = []
        protected: dict[str, tuple[str, ...]] = {}
        for folder, record in records.items():
            name = f"{record.recipe}/{record.id}"
            reasons = tuple(_reasons(folder, record, newest[record.recipe]))
            if limit is not None and record.started < limit:
                if not reasons:
                    given_up.append(name)
                    continue
                protected[name] = reasons
            kept.append(record)
        freed = collect(home.store, _needed(kept), dry_run=dry_run)
    return Collected(freed, len(records), tuple(given_up), protected)


def _record(folder: Path) -> RunRecord:
    try:
        return read_record(folder)
    except ConvkitError as error:
        raise UsageError(
            f"nothing was removed: {error}. convkit cannot tell what this run needs; restore it, or"
            f" move {folder} away"
        ) from error


def _reasons(folder: Path, record: RunRecord, newest: Path) -> Iterator[str]:
    """Yield why a run keeps its artifacts, however old it is."""
    if folder == newest:
        yield "the latest run"
    if beside(folder, ".accepted.json").exists():
        yield "accepted"
    with contextlib.suppress(ConvkitError):
        baseline = read_baseline(baseline_file(recipe_path(record)))
        if baseline is not None and baseline.run == record.id:
            yield "the baseline"
    if beside(folder, SIGNATURES).exists():
        yield "signed"
    if any(target.waivers for target in record.targets):
        yield "has a waiver"


def _needed(records: list[RunRecord]) -> Needed:
    stages = [stage for record in records for stage in record.stages]
    return Needed(
        frozenset(stage.key for stage in stages if stage.key),
        frozenset(stage.artifact for stage in stages if stage.artifact is not None),
    )

"""`convkit accept`: makes a run its recipe's baseline, or retires a recipe's baseline."""

import dataclasses
import getpass
import time
from pathlib import Path

from convkit.host.audit.checks.recorded_inputs import recipe_path
from convkit.host.audit.differences.across_processors import Processors
from convkit.host.audit.past_runs.later_records import (
    Acceptance,
    ReproductionClass,
    reproductions_of,
    write_acceptance,
)
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.home import Home
from convkit.host.nightly.baseline import (
    FORMAT,
    Baseline,
    baseline_file,
    damage_of,
    read_baseline,
    write_baseline,
)
from convkit.host.nightly.baseline_comparison import Comparison, compare
from convkit.host.nightly.recorded_acceptances import ALIAS, accepted_before
from convkit.host.nightly.run_snapshot import Snapshot, comparable, snapshot_of
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe, parse_recipe
from convkit.host.record.provenance import FILE_NAME
from convkit.host.record.run_record import RunRecord
from convkit.host.run.lock_command import recipe_environments
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import digest_file
from convkit.host.toolchain.versions.stage_requirements import package_name
from convkit.protocol.errors import TrackingError, UsageError


@dataclasses.dataclass(frozen=True)
class Accepted:
    """An accepted run: the baseline's file, its changes, and, if MLflow was not updated, the
    reason.
    """

    run: str
    recipe: str
    file: Path
    changes: Comparison | None = None
    untracked: str | None = None


def accept_run(
    folder: Path, home: Home, *, note: str = "", recipe: Path | None = None, track: bool = True
) -> Accepted:
    """Make a run its recipe's baseline: write the file next to the recipe and a note next to the
    run, and set an alias in MLflow.

    `recipe` is required if the recipe has moved since it ran. Raises UsageError if the run failed
    or its bytes changed, if the recipe no longer matches the run, or if an existing baseline would
    change without a note.
    """
    record = _acceptable(folder)
    file = (recipe or recipe_path(record)).absolute()
    loaded = _same_recipe(record, file)
    place = baseline_file(file)
    before = _readable_baseline(place)
    known = before is not None or accepted_before(file, record.recipe, home, track=False)
    if known and not note.strip():
        raise UsageError(
            f"{record.recipe} has a baseline already; say why it moves: convkit accept {record.id}"
            " --note TEXT"
        )
    baseline = _baseline(record, folder, loaded, note, before)
    write_baseline(place, baseline)
    write_acceptance(folder, Acceptance(record.id, baseline.accepted, baseline.by, note, str(file)))
    changes = None
    if before is not None:
        machines = Processors(before.ran_on, baseline.ran_on)
        now = comparable(baseline.snapshot, before.snapshot, record)
        changes = compare(before.snapshot, now, machines)
    accepted = Accepted(record.id, record.recipe, place, changes)
    if not track:
        return accepted
    from convkit.host.track.run_tracker import prepare  # noqa: PLC0415 - MLflow takes seconds to import

    try:
        prepare(None, home.root).accept(record, folder, ALIAS)
    except TrackingError as error:
        return dataclasses.replace(accepted, untracked=str(error))
    return accepted


def retire_recipe(folder: Path, home: Home, *, note: str, track: bool = True) -> Accepted:
    """Retire a recipe's baseline: nightly runs no longer expect it, nor the recipe. Raises
    UsageError without a note.
    """
    record = read_record(folder)
    if not note.strip():
        raise UsageError(
            f"say why {record.recipe} is retired: convkit accept {record.id} --retire --note TEXT"
        )
    file = recipe_path(record)
    place = baseline_file(file)
    place.unlink(missing_ok=True)
    write_acceptance(
        folder, Acceptance(record.id, time.time(), _user(), note, str(file), retired=True)
    )
    retired = Accepted(record.id, record.recipe, place)
    if not track:
        return retired
    from convkit.host.track.run_tracker import prepare  # noqa: PLC0415 - MLflow takes seconds to import

    try:
        prepare(None, home.root).unalias(record.recipe, ALIAS)
    except TrackingError as error:
        return dataclasses.replace(retired, untracked=str(error))
    return retired


def tools_that_matter(loaded: LoadedRecipe) -> frozenset[str]:
    """Return the packages that a recipe's stages request by name, and Python."""
    lines = (line for spec in recipe_environments(loaded.recipe) for line in spec.requirements)
    return frozenset({"python", *map(package_name, lines)})


def snapshot_of_run(record: RunRecord, folder: Path, loaded: LoadedRecipe) -> Snapshot:
    """Return what a run proved, from its record and its provenance."""
    provenance, _ = readable_provenance(folder)
    sources = provenance.dependencies if provenance is not None else ()
    return snapshot_of(record, loaded.recipe, sources, tools_that_matter(loaded))


def _acceptable(folder: Path) -> RunRecord:
    record = read_record(folder)
    if record.status not in ("verified", "waived", "unproven", "skipped"):
        raise UsageError(f"run {record.id} {record.status}; only a verified run can be a baseline")
    if damaged := damage_of(folder):
        raise UsageError(
            f"run {record.id} is not intact: {damaged[0]}; see convkit audit {record.id}"
        )
    if not (folder / FILE_NAME).is_file():
        raise UsageError(f"run {record.id} has no {FILE_NAME}; run the recipe again to accept it")
    return record


def _same_recipe(record: RunRecord, file: Path) -> LoadedRecipe:
    """Return the recipe in a file; raises UsageError unless it matches the run's recipe."""
    if not file.is_file():
        raise UsageError(
            f"{file}: the recipe is gone; say where it is now: convkit accept {record.id}"
            " --recipe FILE"
        )
    loaded = load_recipe(file)
    if loaded.text != record.recipe_text:
        ran = parse_recipe(record.recipe_text, file)
        if ran.recipe != loaded.recipe:
            raise UsageError(
                f"{file} has changed since run {record.id}; run it again, and accept that run"
            )
    return loaded


def _readable_baseline(place: Path) -> Baseline | None:
    try:
        return read_baseline(place)
    except UsageError:
        return None  # damaged: accepting a run repairs it


def _baseline(
    record: RunRecord, folder: Path, loaded: LoadedRecipe, note: str, before: Baseline | None
) -> Baseline:
    return Baseline(
        format=FORMAT,
        run=record.id,
        provenance=digest_file(folder / FILE_NAME),
        convkit=record.convkit,
        processor=str(record.host.get("processor", "")),
        features=str(record.host.get("processor_features", "")),
        accepted=time.time(),
        by=_user(),
        note=note,
        snapshot=snapshot_of_run(record, folder, loaded),
        reproduced=_reproduced(record, folder, before),
    )


def _reproduced(
    record: RunRecord, folder: Path, before: Baseline | None
) -> dict[str, ReproductionClass]:
    """Return the class that each target must reach again: that of the run's latest reproduction or,
    until its first, that of the previous baseline.
    """
    known = reproductions_of(folder)
    reached = known[-1].artifacts if known else before.reproduced if before is not None else {}
    names = {target.name for target in record.targets}
    return {name: likeness for name, likeness in reached.items() if name in names}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # this user id has no name, as in many containers
        return "unknown"

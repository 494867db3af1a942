"""Checks one recipe in a nightly run: verifies it anew, reproduces its baseline, compares."""

import dataclasses
import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.audit_policy import Policy
from convkit.host.audit.differences.across_processors import WITHIN_ROUNDING, Processors
from convkit.host.audit.differences.lost_classes import Attempt, best_classes, lost_classes
from convkit.host.audit.past_runs.later_records import ReproductionClass, reproductions_of
from convkit.host.audit.past_runs.run_folders import run_folders
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.reproduce_command import ReproductionReport, reproduce
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.nightly.accept_command import snapshot_of_run
from convkit.host.nightly.baseline import (
    Baseline,
    baseline_file,
    is_edited,
    read_baseline,
    readable_damage,
)
from convkit.host.nightly.baseline_comparison import Comparison, compare, unaccepted
from convkit.host.nightly.earlier_nights import (
    COMMAND,
    earlier_results,
    figure_history,
    read_logged,
)
from convkit.host.nightly.figure_limits import NEVER_FAILS, history_faults
from convkit.host.nightly.nightly_record import NightlyFault, RecipeResult, RecipeStatus
from convkit.host.nightly.recorded_acceptances import acceptance_folders, accepted_before
from convkit.host.nightly.run_snapshot import Snapshot, comparable
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe
from convkit.host.record.processor_record import processor_of
from convkit.host.record.provenance import FILE_NAME
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import seconds_of, waiver_lines
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.digests import digest_file
from convkit.host.track.metric_history import figures_of
from convkit.host.verdict.waivers import day_of
from convkit.protocol.errors import ConvkitError, Interrupted, UsageError

# A waiver that expires within this many days is announced.
_ANNOUNCED_DAYS = 14


@dataclasses.dataclass(frozen=True)
class NightlyOptions:
    """Command-line options of a nightly run. With `reuse_builds`, exports and builds may come from
    the store. `policy` is what the baseline's run must satisfy.
    """

    home: Home
    toolchain: ToolchainKind = "isolated"
    jobs: int = 2
    reuse_builds: bool = False
    canary: bool = False
    track: bool = True
    policy: Policy | None = None


def check_recipe(file: Path, options: NightlyOptions, listener: Listener) -> RecipeResult:
    """Return a recipe's result. A broken recipe is a result, not an error; raises Interrupted on
    Ctrl-C.
    """
    started = time.time()
    name = file.stem
    try:
        loaded = load_recipe(file)
        name = loaded.recipe.name
        return _check(loaded, options, listener, started)
    except Interrupted:
        raise
    except ConvkitError as error:
        return RecipeResult(
            str(file), name, "broken", time.time() - started, faults=(_broken(file, error),)
        )


def _broken(file: Path, error: ConvkitError) -> NightlyFault:
    if file.is_file():
        return NightlyFault("broken", str(file), str(error))
    return NightlyFault(
        "recipe",
        str(file),
        f"{file} is gone, and has an accepted baseline. Restore the recipe; or, if it was renamed,"
        " accept a run of the new one and delete the old baseline; or retire it: convkit accept RUN"
        " --retire --note TEXT",
    )


def _check(
    loaded: LoadedRecipe, options: NightlyOptions, listener: Listener, started: float
) -> RecipeResult:
    name = loaded.recipe.name
    baseline, baseline_faults = find_baseline(loaded.path, name, options)
    accepted = _AcceptedRun.before(baseline, name, options)
    outcome = run_recipe(_run_options(loaded.path, options), listener)
    record = outcome.record
    reproduction = accepted.reproduce(loaded.path, options, listener)
    snapshot = snapshot_of_run(record, outcome.folder, loaded)
    compared = compare_with_baseline(snapshot, baseline, record)
    past, past_notes = _history(record, snapshot, options, baseline, compared.faults)
    reached = best_classes(accepted.attempts, processor_of(record.host))
    faults = (
        *baseline_faults,
        *accepted.faults,
        *compared.faults,
        *(_lost(reproduction, reached, baseline) if reproduction else ()),
        *past,
    )
    return RecipeResult(
        file=str(loaded.path),
        recipe=name,
        status=_status(faults),
        seconds=time.time() - started,
        run=record.id,
        started=record.started,
        processor=str(record.host.get("processor", "")),
        features=str(record.host.get("processor_features", "")),
        tracked=options.track and outcome.untracked is None,
        verdicts={target.name: target.status for target in record.targets},
        seconds_of={target.name: seconds_of(record, target.name) for target in record.targets},
        figures=figures_of(record),
        baseline=baseline.run if baseline is not None else "",
        damaged=accepted.damaged,
        reproduction=reproduction,
        faults=faults,
        improvements=compared.improvements,
        elsewhere=(*compared.elsewhere, *(made_elsewhere(reproduction) if reproduction else ())),
        waivers=waiver_lines(record),
        notes=(
            *compared.notes,
            *accepted.notes,
            *past_notes,
            *_ending_waivers(record),
            *_notes(outcome, unaccepted_yet=not baseline_faults and baseline is None),
        ),
    )


def _status(faults: tuple[NightlyFault, ...]) -> RecipeStatus:
    return "regressed" if faults else "green"


def _run_options(file: Path, options: NightlyOptions) -> RunOptions:
    return RunOptions(
        file,
        options.home,
        toolchain=options.toolchain,
        jobs=options.jobs,
        force=not options.reuse_builds,
        rerun=("verify",),
        track=options.track,
        command=(*COMMAND, str(file)),
    )


def find_baseline(
    recipe: Path, name: str, options: NightlyOptions
) -> tuple[Baseline | None, tuple[NightlyFault, ...]]:
    """Return a recipe's baseline, and any problem with its file: damaged, edited, or missing
    although one was accepted.
    """
    place = baseline_file(recipe)
    try:
        baseline = read_baseline(place)
    except UsageError as error:
        return None, (NightlyFault("baseline", place.name, str(error)),)
    if baseline is not None:
        if not is_edited(baseline):
            return baseline, ()
        message = (
            f"{place} was edited. Only convkit accept changes a baseline: restore it from version"
            " control, or accept a run: convkit accept RUN --note TEXT"
        )
        return baseline, (NightlyFault("baseline", place.name, message),)
    witness = accepted_before(recipe, name, options.home, track=options.track)
    if witness is None:
        return None, ()
    message = (
        f"{place} is missing, but {witness}. Restore it from version control, or accept a run:"
        " convkit accept RUN --note TEXT"
    )
    return None, (NightlyFault("baseline", place.name, message),)


def compare_with_baseline(
    snapshot: Snapshot, baseline: Baseline | None, record: RunRecord
) -> Comparison:
    """Return how the run differs from the baseline; without one, the targets that failed."""
    if baseline is None:
        return Comparison(unaccepted(snapshot))
    machines = Processors(baseline.ran_on, processor_of(record.host))
    return compare(baseline.snapshot, comparable(snapshot, baseline.snapshot, record), machines)


@dataclasses.dataclass(frozen=True)
class _AcceptedRun:
    """The baseline's run as found in this home. `attempts` are what reproductions reached."""

    folder: Path | None = None
    damaged: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    faults: tuple[NightlyFault, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def before(
        cls, baseline: Baseline | None, name: str, options: NightlyOptions
    ) -> "_AcceptedRun":
        """Inspect the baseline's run before anything else runs."""
        if baseline is None:
            return cls()
        run, home = baseline.run, options.home
        folder = next((each for each in run_folders(home) if each.name == run), None)
        if folder is None:
            # The note next to a run survives its folder.
            notes = [each / f"{run}.accepted.json" for each in acceptance_folders(name, home)]
            if any(each.exists() for each in notes):
                message = f"the baseline's run {run} was deleted from {home.root}"
                attempts = attempts_at(baseline)
                return cls(attempts=attempts, faults=(NightlyFault("baseline", run, message),))
            return cls(notes=(f"not reproduced: this home does not have the baseline's run {run}",))
        damaged = readable_damage(folder)
        if not damaged and digest_file(folder / FILE_NAME) != baseline.provenance:
            damaged = (f"{FILE_NAME}: not the one accepted",)
        faults = tuple(
            NightlyFault("baseline", each.partition(":")[0], f"the baseline's run changed: {each}")
            for each in damaged
        )
        faults += policy_faults(folder, options)
        return cls(folder, damaged, attempts_at(baseline, folder), faults)

    def reproduce(
        self, recipe: Path, options: NightlyOptions, listener: Listener
    ) -> ReproductionReport | None:
        """Repeat the baseline's run; None if this home does not have it, or cannot read it."""
        if self.folder is None:
            return None
        beside = recipe.absolute().parent
        try:
            return reproduce(
                self.folder, options.home, files=beside, listener=listener, jobs=options.jobs
            )
        except Interrupted:
            raise
        except ConvkitError:
            if self.damaged:
                return None  # the damage has already been reported as a fault
            raise


def policy_faults(folder: Path, options: NightlyOptions) -> tuple[NightlyFault, ...]:
    """Return what the policy requires of the baseline's run and does not find."""
    if options.policy is None:
        return ()
    answer = audit(LocatedRun(folder), options.home, options.policy)
    found = (*answer.violations, *map(str, answer.contradictions))
    return tuple(
        NightlyFault("baseline", folder.name, f"the policy on the baseline's run: {each}")
        for each in found
    )


def attempts_at(baseline: Baseline, folder: Path | None = None) -> tuple[Attempt, ...]:
    """Return what reproductions of a baseline's run reached: as its file says, and those since it
    was accepted.
    """
    found = [Attempt(baseline.ran_on, baseline.reproduced)]
    try:
        attempts = reproductions_of(folder) if folder is not None else []
    except ConvkitError:
        attempts = []  # `convkit audit` reports them as broken; the baseline's own classes remain
    found += [
        Attempt(processor_of(each.host), each.artifacts)
        for each in attempts
        if each.when >= baseline.accepted
    ]
    return tuple(found)


def _lost(
    made: ReproductionReport, reached: dict[str, ReproductionClass], baseline: Baseline | None
) -> Iterator[NightlyFault]:
    """Yield the artifacts that reproduced worse than ever before, with what differs."""
    targets = baseline.snapshot.targets if baseline is not None else {}
    outcomes = {each.target: each for each in made.artifacts}
    for lost in lost_classes(
        {name: each.likeness for name, each in outcomes.items()},
        reached,
        incomparable=[name for name, each in outcomes.items() if each.incomparable],
        skipped=[name for name, each in targets.items() if each.status == "skipped"],
    ):
        outcome, message = outcomes[lost.target], str(lost)
        found = "; ".join([*outcome.where[:3], *outcome.why[:2]])
        message += f": {found}" if found else ""
        yield NightlyFault("reproduction", lost.target, message, lost.target)


def made_elsewhere(made: ReproductionReport) -> Iterator[str]:
    """Yield the artifacts whose class another processor explains."""
    for artifact in made.artifacts:
        if artifact.likeness == WITHIN_ROUNDING:
            yield f"{artifact.target} reproduced as {artifact.likeness} of another processor's"
        elif artifact.incomparable:
            yield (
                f"{artifact.target} reproduced as {artifact.likeness}: its figures are of other"
                " integer kernels than the recorded ones, so they do not show a smaller difference"
            )


def _history(
    record: RunRecord,
    snapshot: Snapshot,
    options: NightlyOptions,
    baseline: Baseline | None,
    known: tuple[NightlyFault, ...],
) -> tuple[tuple[NightlyFault, ...], tuple[str, ...]]:
    """Return the figures that are worse than their history allows, and faults in the history
    itself.
    """
    since = baseline.accepted if baseline is not None else 0.0
    earlier = earlier_results(options.home, record.recipe, since)
    logged, faults, notes = (
        read_logged(record, options.home, earlier, since) if options.track else ({}, (), ())
    )
    history = figure_history(earlier, logged, processor_of(record.host))
    judged = {
        name for name, target in snapshot.targets.items() if target.status in ("verified", "waived")
    }
    found = [
        each
        for each in history_faults(figures_of(record), history)
        if each.target in judged and not _same_figure(each, known)
    ]
    slow = tuple(each.message for each in found if NEVER_FAILS in each.subject)
    worse = tuple(each for each in found if NEVER_FAILS not in each.subject)
    return (*faults, *worse), (*notes, *slow)


def _same_figure(fault: NightlyFault, known: tuple[NightlyFault, ...]) -> bool:
    """Return True if the comparison with the baseline has already reported this figure."""
    metric = fault.subject.split()[1].removesuffix("_err")
    return any(
        each.kind == "figure" and each.target == fault.target and each.subject.endswith(metric)
        for each in known
    )


def _ending_waivers(record: RunRecord) -> Iterator[str]:
    """Announce waivers that will soon expire, before they fail a nightly run."""
    today = day_of(record.started)
    for target in record.targets:
        for each in target.waivers:
            days = (dt.date.fromisoformat(each.until) - today).days
            if each.state == "active" and days <= _ANNOUNCED_DAYS:
                yield f"the waiver of {each.code} in {target.name} expires in {days} days"


def _notes(outcome: RunOutcome, *, unaccepted_yet: bool) -> Iterator[str]:
    if outcome.untracked is not None:
        yield f"not logged to MLflow: {outcome.untracked}"
    if unaccepted_yet:
        yield (
            f"no baseline, so only failures show; accept a run: convkit accept {outcome.record.id}"
        )

"""`convkit reproduce`: rebuilds a past run from its record, and classifies each artifact."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convkit.host.audit.checks.recorded_inputs import (
    changed_sources,
    changed_surroundings,
    recorded_recipe,
    recorded_resolutions,
)
from convkit.host.audit.differences.across_processors import (
    WITHIN_ROUNDING,
    Processors,
    target_relation,
    whole_outputs,
)
from convkit.host.audit.past_runs.later_records import (
    CLASSES,
    Reproduction,
    ReproductionClass,
    write_reproduction,
)
from convkit.host.diagnosis.built_model_comparison import compare_artifacts, worst_likeness
from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import describe_host, gather
from convkit.host.facts.processor_features import processor
from convkit.host.facts.version_sources import Resolver, recorded_tools
from convkit.host.home import Home
from convkit.host.plan.stages import Stage, plan_stages
from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.processes.reproduction_variation import Variation
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.processor_record import processor_of, processor_on_record
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.run.run_command import run_loaded
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.protocol.errors import ConvkitError, Interrupted, RecipeError
from convkit.protocol.messages import CompareResult

# Parts of the home that a reproduction shares: they are verified by hashes or pins.
_SHARED = ("environments", "packages")


@dataclasses.dataclass(frozen=True)
class ArtifactOutcome:
    """A rebuilt artifact of one target. `where` lists differences, `why` what else changed.
    `incomparable`: the figures are of other integer kernels than the run's, so they do not tell
    whether the artifact equals the run's within rounding.
    """

    target: str
    likeness: ReproductionClass
    where: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    incomparable: bool = False


@dataclasses.dataclass(frozen=True)
class ReproductionReport:
    """A reproduced run: the outcome of every target, and what was varied on purpose. `elsewhere`:
    the run was recorded on another processor.
    """

    run: str
    folder: str
    artifacts: tuple[ArtifactOutcome, ...]
    varied: str
    seconds: float
    elsewhere: bool = False

    @property
    def worst(self) -> ReproductionClass:
        """The worst class of all artifacts; UNVERIFIABLE if there are none."""
        return max(
            (each.likeness for each in self.artifacts), key=CLASSES.index, default="UNVERIFIABLE"
        )

    @property
    def reproduced(self) -> bool:
        """True if every artifact is identical or agrees within its tolerance."""
        return CLASSES.index(self.worst) <= CLASSES.index("NUMERIC_OK")


def reproduce(
    folder: Path,
    home: Home,
    *,
    files: Path | None = None,
    variation: Variation | None = None,
    listener: Listener | None = None,
    jobs: int = 2,
) -> ReproductionReport:
    """Rebuild a run in scratch space, without the store, and compare its artifacts with the
    originals.

    `files` is a folder with the files named in the recipe, if they have moved. The outcome is
    stored next to the run's folder. Raises UsageError if the recipe's files are gone, and
    KeyboardInterrupt.
    """
    started = time.time()
    record = read_record(folder)
    varied = variation or Variation()
    try:
        loaded = recorded_recipe(record, files)
        with _scratch(home) as scratch:
            artifacts = _make_again(
                folder, record, loaded, scratch, home, varied, listener or SilentListener(), jobs
            )
    except RecipeError as error:
        artifacts = _all(
            record, "UNVERIFIABLE", f"the recorded recipe cannot be read here: {error}"
        )
    report = ReproductionReport(
        record.id,
        str(folder),
        artifacts,
        str(varied),
        time.time() - started,
        _processors(record).differ,
    )
    classes = {each.target: each.likeness for each in artifacts}
    incomparable = tuple(each.target for each in artifacts if each.incomparable)
    host = describe_host(record.toolchain)
    write_reproduction(
        folder,
        Reproduction(record.id, started, report.worst, classes, host, incomparable=incomparable),
    )
    return report


def _make_again(
    folder: Path,
    record: RunRecord,
    loaded: LoadedRecipe,
    scratch: Home,
    home: Home,
    varied: Variation,
    listener: Listener,
    jobs: int,
) -> tuple[ArtifactOutcome, ...]:
    targets = tuple(target.name for target in record.targets)
    options = RunOptions(
        recipe=loaded.path,
        home=scratch,
        only=targets,
        toolchain=record.toolchain,
        jobs=jobs,
        force=True,
        track=False,
        command=("convkit", "reproduce", record.id),
        variation=varied,
    )
    absent = frozenset(absent_parts(loaded.recipe, scratch, record.toolchain, may_resolve=False))
    stages = plan_stages(loaded.recipe, targets, absent)
    tools = recorded_tools(recorded_resolutions(folder, stages))
    try:
        sources = _sources(folder, loaded, stages, tools, scratch, record)
        outcome = run_loaded(options, loaded, listener, tools=tools)
    except Interrupted:
        raise
    except ConvkitError as error:
        return _all(record, "BUILD_FAILED", str(error).splitlines()[0])
    changes = changed_surroundings(record, outcome.record)
    again = {target.name: target for target in outcome.record.targets}
    return tuple(
        _classify(target, again[target.name], folder, outcome, home, record, sources, changes)
        for target in record.targets
    )


def _sources(
    folder: Path,
    loaded: LoadedRecipe,
    stages: tuple[Stage, ...],
    tools: Resolver,
    scratch: Home,
    record: RunRecord,
) -> tuple[str, ...]:
    surroundings = gather(loaded, stages, scratch, record.toolchain, tools)
    return changed_sources(folder, loaded, surroundings, scratch)


def _classify(
    before: TargetReport,
    after: TargetReport,
    folder: Path,
    outcome: RunOutcome,
    home: Home,
    record: RunRecord,
    sources: tuple[str, ...],
    changes: tuple[str, ...],
) -> ArtifactOutcome:
    """Return how close one target's artifact came."""
    name = before.name
    if not before.files:
        return ArtifactOutcome(name, "UNVERIFIABLE", (), ("the run built nothing for this target",))
    if not after.files:
        if after.status == "skipped":
            return ArtifactOutcome(name, "SKIPPED_NO_WORKER", (), (after.headline,))
        return ArtifactOutcome(name, "BUILD_FAILED", (), (after.headline, *sources, *changes))
    first, second = folder / "models" / name, outcome.folder / "models" / name
    if missing := [file for file in before.files if not (folder / file).is_file()]:
        return ArtifactOutcome(
            name, "UNVERIFIABLE", (), (f"the run's own {missing[0]} is missing",)
        )
    compared = compare_artifacts(first, second, home, record.toolchain)
    likeness = worst_likeness(compared)
    where = differences_of(compared)
    if likeness in ("BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL"):
        return ArtifactOutcome(
            name, likeness, where, () if likeness == "BIT_IDENTICAL" else (*sources, *changes)
        )
    if after.status == "skipped" and set(after.files) != set(before.files):
        return ArtifactOutcome(name, "SKIPPED_NO_WORKER", where, (after.headline,))
    # A differing artifact was verified against the original. If the original changed too, their
    # agreement proves nothing about the run.
    holds = after.status in ("verified", "skipped") and not sources
    why = (*sources, *changes, after.headline)
    if not holds:
        return ArtifactOutcome(name, "DRIFTED", where, why)
    processors = Processors(processor_of(record.host), processor_of(outcome.record.host))
    if not processors.differ:
        return ArtifactOutcome(name, "NUMERIC_OK", where, why)
    relation = target_relation(before, after, processors, whole_outputs(record.contract))
    if relation in ("equal", WITHIN_ROUNDING):
        return ArtifactOutcome(name, WITHIN_ROUNDING, where, why)
    return ArtifactOutcome(name, "NUMERIC_OK", where, why, incomparable=relation == "incomparable")


def _processors(record: RunRecord) -> Processors:
    """Return the processor of a run and this machine's."""
    mine = processor()
    return Processors(processor_of(record.host), processor_on_record(mine.name, mine.features))


def differences_of(compared: CompareResult) -> tuple[str, ...]:
    """Return the differences between two artifacts, one line each."""
    lines = []
    for file in compared.files:
        if file.likeness in ("MISSING", "EXTRA"):
            lines.append(f"{file.name}: {file.likeness.lower()}")
        for difference in file.differences:
            sides = (
                f": {difference.first} -> {difference.second}"
                if difference.first or difference.second
                else ""
            )
            lines.append(f"{file.name}: {difference.kind} {difference.place}{sides}")
    return tuple(lines)


def _all(record: RunRecord, likeness: ReproductionClass, why: str) -> tuple[ArtifactOutcome, ...]:
    return tuple(ArtifactOutcome(target.name, likeness, (), (why,)) for target in record.targets)


@contextmanager
def _scratch(home: Home) -> Iterator[Home]:
    """Create a temporary home that shares another home's environments and packages."""
    root = home.root / "scratch" / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    root.mkdir(parents=True)
    for name in _SHARED:
        (home.root / name).mkdir(exist_ok=True)
        (root / name).symlink_to(home.root / name, target_is_directory=True)
    try:
        yield Home(root)
    finally:
        for name in _SHARED:
            (root / name).unlink(missing_ok=True)  # removes the link, never its target
        shutil.rmtree(root, ignore_errors=True)

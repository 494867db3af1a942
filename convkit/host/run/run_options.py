"""What a run is asked for, what it works with, and what comes of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.facts.version_sources import Resolver, recipe_tools, recorded_tools
from convkit.host.home import Home
from convkit.host.plan.stages import Stage
from convkit.host.processes.progress_events import Listener
from convkit.host.processes.reproduction_variation import Variation
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import (
    RepairStep,
    RunRecord,
    TargetReport,
    WithdrawnStep,
    worst_status,
)
from convkit.host.store.store import Store
from convkit.protocol.messages import StageKind

if TYPE_CHECKING:
    from convkit.host.fleet.run_fleet import Fleet


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """A run's options. Stages of the kinds in `rerun` always run, even if they are cached. Without
    `explain`, nothing is searched for why targets failed.
    """

    recipe: Path
    home: Home
    only: tuple[str, ...] = ()
    toolchain: ToolchainKind = "isolated"
    jobs: int = 2
    force: bool = False
    track: bool = True
    command: tuple[str, ...] = ()
    variation: Variation | None = None
    rerun: tuple[StageKind, ...] = ()
    explain: bool = True
    resident: bool = False  # fork servers outlive the run
    scheduler: str | None = None  # stages run on the workers of this Dask cluster,
    shared_store: str | None = None  # which read and write the store at this URL


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """A run's record and folder. `untracked`: why it could not be logged to MLflow. `up_to_date`:
    nothing had to run.
    """

    record: RunRecord
    folder: Path
    up_to_date: bool = False
    tracked: str | None = None
    untracked: str | None = None


@dataclasses.dataclass(frozen=True)
class Lineage:
    """The run that this one repairs, and the remedies applied so far; those of the current round
    have no outcome yet. `withdrawn` are those that were tried and taken back.
    """

    repaired_from: str
    steps: tuple[RepairStep, ...]
    withdrawn: tuple[WithdrawnStep, ...] = ()

    def ended_as(self, targets: Sequence[TargetReport]) -> tuple[RepairStep, ...]:
        """Return the steps, with what the current round made of each one's own target."""

        def outcome(step: RepairStep) -> str:
            own = [target for target in targets if target.name == step.target]
            return step.outcome or outcome_text(own or targets)

        return tuple(dataclasses.replace(step, outcome=outcome(step)) for step in self.steps)


def outcome_text(targets: Sequence[TargetReport]) -> str:
    """Summarize the targets in a few words: the first one that failed, with its headline."""
    wrong = next((target for target in targets if target.status in ("failed", "broken")), None)
    return (
        f"{wrong.name} {wrong.status}: {wrong.headline}"
        if wrong
        else worst_status([t.status for t in targets])
    )


@dataclasses.dataclass(frozen=True)
class RunWork:
    """One run in progress: its plan, its store and its listener."""

    options: RunOptions
    loaded: LoadedRecipe
    stages: tuple[Stage, ...]
    store: Store
    absent: Mapping[str, str]
    listener: Listener
    lineage: Lineage | None
    fleet: "Fleet | None"

    def tools(self, *, may_resolve: bool) -> Resolver:
        """Return the resolver of exact versions: the recipe's lock, or earlier resolutions."""
        if self.options.toolchain == "host":
            return recorded_tools({})  # asked for nothing
        return recipe_tools(
            self.loaded, self.options.home, may_resolve=may_resolve, strict=self.lineage is None
        )

"""The results of a nightly run, stored in `nightly.json` (docs/nightly.md)."""

import dataclasses
from typing import Literal

from convkit.host.audit.reproduce_command import ReproductionReport
from convkit.host.record.processor_record import RecordedProcessor, processor_on_record

FORMAT = 2

# green: nothing regressed · regressed: a fault was found · broken: the recipe could not be run.
RecipeStatus = Literal["green", "regressed", "broken"]

# The subject of a fault. These words appear in JUnit test names, so they are stable.
FaultKind = Literal[
    "recipe",
    "baseline",
    "target",
    "verdict",
    "tolerance",
    "waiver",
    "case",
    "evidence",
    "tool",
    "source",
    "figure",
    "reproduction",
    "history",
    "broken",
]


@dataclasses.dataclass(frozen=True)
class NightlyFault:
    """A reason why a nightly run fails.

    `subject` identifies the fault uniquely among its kind (`ort y max_abs`); `target` is empty if
    the fault does not concern a single target.
    """

    kind: FaultKind
    subject: str
    message: str
    target: str = ""


@dataclasses.dataclass(frozen=True)
class RecipeResult:
    """One recipe's part of a nightly run.

    `faults` fail it; `improvements` (over the baseline) and `notes` do not, nor does `elsewhere`:
    what the baseline's other processor explains. `figures` are the run's own, under MLflow's names;
    `seconds_of` is the duration of each target's stages; `waivers` are the recipe's, a line each.
    `processor` is its name, `features` are what of it can change a result.
    """

    file: str
    recipe: str
    status: RecipeStatus
    seconds: float
    run: str = ""
    started: float = 0.0
    processor: str = ""
    tracked: bool = False
    verdicts: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds_of: dict[str, float] = dataclasses.field(default_factory=dict)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    baseline: str = ""
    damaged: tuple[str, ...] = ()
    reproduction: ReproductionReport | None = None
    faults: tuple[NightlyFault, ...] = ()
    improvements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    waivers: tuple[str, ...] = ()
    features: str = ""
    elsewhere: tuple[str, ...] = ()

    @property
    def ran_on(self) -> RecordedProcessor:
        """The processor that the run ran on."""
        return processor_on_record(self.processor, self.features)


@dataclasses.dataclass(frozen=True)
class Canary:
    """A recipe run with newer tools: the newest its specifiers allow, or the newest of all. It
    never fails a nightly run. `newer` are the releases that differ, `changed` what they changed.
    """

    recipe: str
    kind: Literal["allowed", "newest"]
    status: str
    headline: str
    newer: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class NightlyRun:
    """A nightly run, finished or in progress (`ended` is None).

    `asked` are the recipe files, in order; `environments` lists damaged installed files.
    """

    format: int
    id: str
    started: float
    asked: tuple[str, ...]
    ended: float | None = None
    recipes: tuple[RecipeResult, ...] = ()
    environments: tuple[str, ...] = ()
    canaries: tuple[Canary, ...] = ()

    @property
    def green(self) -> bool:
        """True if every recipe was checked and is green, and all environments are intact."""
        return (
            not self.environments
            and len(self.recipes) == len(self.asked)
            and all(each.status == "green" for each in self.recipes)
        )

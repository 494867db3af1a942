"""What a nightly run found. `nightly.json` holds it (docs/nightly.md)."""

import dataclasses
from typing import Literal

from convkit.audit.reproduce import ReproductionReport

FORMAT = 2

# green: nothing regressed · regressed: something did · broken: the recipe, or convkit on it, could
# not do its work.
RecipeStatus = Literal["green", "regressed", "broken"]

# What a fault is about. The words appear in JUnit's test names, so they are stable.
FaultKind = Literal[
    "recipe",
    "baseline",
    "target",
    "verdict",
    "tolerance",
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
class Fault:
    """One thing that fails a nightly run.

    `subject` names what is at fault, unique among the faults of its kind (`ort y max_abs`);
    `target` is empty where the fault is not one target's.
    """

    kind: FaultKind
    subject: str
    message: str
    target: str = ""


@dataclasses.dataclass(frozen=True)
class RecipeResult:
    """One recipe's part of a nightly run.

    `faults` fail it; `improvements` (better than the baseline) and `notes` fail nothing. `figures`
    are the run's own, under MLflow's names; `seconds_of` is what each target's stages took.
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
    faults: tuple[Fault, ...] = ()
    improvements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Canary:
    """A recipe under newer tools: all that its specifiers allow, or the newest there are. It never
    fails a nightly run.
    """

    recipe: str
    kind: Literal["allowed", "newest"]
    status: str
    headline: str
    newer: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class NightlyRun:
    """A nightly run, finished or so far (`ended` is None).

    `asked` are the recipes' files, in order; `environments` says which installed files are damaged.
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

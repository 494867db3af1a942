"""What a night found. `night.json` holds it (docs/nightly.md)."""

import dataclasses
from typing import Literal

from convkit.audit.reproduce import ReproductionReport

FORMAT = 1

# green: nothing got worse · regression: something did · broken: the recipe, or convkit on it, could
# not do its work.
RecipeStatus = Literal["green", "regression", "broken"]


@dataclasses.dataclass(frozen=True)
class Drift:
    """A figure beyond what its history allows: `bound` follows from the median of `count` earlier
    nights.
    """

    target: str
    metric: str
    value: float
    median: float
    bound: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.target} {self.metric}: {self.value:.3g}, median of {self.count} runs"
            f" {self.median:.3g}"
        )


@dataclasses.dataclass(frozen=True)
class RecipeNight:
    """One recipe's night. `regressions` say what got worse, `notes` what is worth a look and fails
    nothing.
    """

    file: str
    recipe: str
    status: RecipeStatus
    seconds: float
    run: str = ""
    verdicts: dict[str, str] = dataclasses.field(default_factory=dict)
    baseline: str = ""
    damaged: tuple[str, ...] = ()
    reproduction: ReproductionReport | None = None
    drifts: tuple[Drift, ...] = ()
    regressions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Canary:
    """A recipe under newer tools: all that its specifiers allow, or the newest there are. It never
    fails a night.
    """

    recipe: str
    kind: Literal["allowed", "newest"]
    status: str
    headline: str
    newer: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Night:
    """A night, whole or so far (`ended` is None). `asked` are the recipes' files, in order."""

    format: int
    id: str
    started: float
    asked: tuple[str, ...]
    ended: float | None = None
    recipes: tuple[RecipeNight, ...] = ()
    canaries: tuple[Canary, ...] = ()

    @property
    def green(self) -> bool:
        """True where every recipe that was asked for is green."""
        return len(self.recipes) == len(self.asked) and all(
            each.status == "green" for each in self.recipes
        )

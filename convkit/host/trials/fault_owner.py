"""Whose fault a wrong result is, decided by experiments that differ from it in one thing. Pure.

A file that one runtime, or another release of the same one, computes right is not wrong.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from convkit.protocol.json_codec import Json

Owner = Literal[
    "original",
    "module",
    "exporter",
    "optimizer",
    "converter",
    "kernel",
    "fusion",
    "processor",
    "recipe",
]
# What an experiment changes: it leaves everything else as it was.
Kind = Literal[
    "other_runtime",  # the same file under another runtime
    "other_release",  # the same file under another release of the same runtime
    "other_opset",  # the same module, exported to another opset
    "other_route",  # the same runtime, by another way of converting
    "other_precision",  # the same target, with other modules in float32
    "fewer_fusions",  # the same file, with fewer of the runtime's optimizations
]
Outcome = Literal["right", "wrong", "untried"]
# Experiments that leave the file as it is.
_SAME_FILE: tuple[Kind, ...] = ("other_runtime", "other_release")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One thing changed, and what came of it.

    `what` names the changed thing in a sentence, such as `onnxruntime 1.31.0`. `cases` is how many
    cases were compared, `largest` the largest absolute error among them. `change` is the recipe's;
    empty for what the run had done anyway. `why` explains what was not tried.
    """

    kind: Kind
    what: str
    outcome: Outcome
    cases: int = 0
    largest: float | None = None
    change: dict[str, Json] = dataclasses.field(default_factory=dict)
    why: str | None = None

    @property
    def record(self) -> dict[str, Json]:
        """The experiment as evidence of a finding."""
        found: dict[str, Json] = {"kind": self.kind, "what": self.what, "outcome": self.outcome}
        if self.outcome != "untried":
            found |= {"cases": self.cases, "largest": self.largest}
        return found | ({"why": self.why} if self.why else {})


def same_file_right(experiments: Iterable[Experiment]) -> Experiment | None:
    """Return an experiment that computed the same file right; None if none did."""
    return next(
        (each for each in experiments if each.kind in _SAME_FILE and each.outcome == "right"), None
    )


def owner_of(experiments: Sequence[Experiment]) -> Owner | None:
    """Return the owner that the experiments show; None if they do not separate any.

    The same file is right elsewhere: the runtime's kernel. It is right in this release by another
    route: what that route avoids, the runtime's fusions or the converter. An opset says nothing
    about owners: it changes the file.
    """
    right = {each.kind for each in experiments if each.outcome == "right"}
    if "fewer_fusions" in right:
        return "fusion"
    if same_file_right(experiments) is not None:
        return "kernel"
    return "converter" if "other_route" in right else None


def shown(experiment: Experiment) -> str:
    """Say what an experiment showed, with what it changed."""
    return f"{experiment.what}: {result(experiment)}"


def result(experiment: Experiment) -> str:
    """Say what an experiment showed, as the end of a sentence."""
    match experiment.outcome:
        case "right":
            plural = "s" if experiment.cases != 1 else ""
            off = "" if experiment.largest is None else f", off by {experiment.largest:.2g} at most"
            return f"right in {experiment.cases} case{plural}{off}"
        case "wrong":
            if experiment.kind == "other_precision" and experiment.largest is not None:
                return f"wrong as well, off by {experiment.largest:.2g} at most"
            return "wrong as well"
        case "untried":
            return f"not tried, {experiment.why}"

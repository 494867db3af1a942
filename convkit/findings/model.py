"""The types of a finding. Standard library only: workers make findings too."""

import dataclasses
from typing import Literal

from convkit.codec import Json

Severity = Literal["error", "warning", "note"]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a finding points: a tensor, a node, a module path, a source line, a case. Whatever is
    known.
    """

    tensor: str | None = None
    node: str | None = None
    module: str | None = None
    source: str | None = None
    case: str | None = None

    def __str__(self) -> str:
        return ", ".join(str(part) for part in dataclasses.astuple(self) if part)


@dataclasses.dataclass(frozen=True)
class Remedy:
    """What to do: in words, and as a change to the recipe where one exists.

    `change` maps key paths of the recipe (`targets.ort-cpu.precision`) to their new values.
    Workers, which do not know their target's name, write `target.precision`.
    """

    text: str
    change: dict[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A coded result of a check. `code` is a key of `convkit.findings.catalogue.CATALOGUE`.

    `chain` leads from the cause to the symptom, one step a line, where the check followed it.
    """

    code: str
    severity: Severity
    message: str
    place: Place = dataclasses.field(default_factory=Place)
    evidence: dict[str, Json] = dataclasses.field(default_factory=dict)
    remedy: Remedy | None = None
    chain: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """True for a finding that fails its target."""
        return self.severity == "error"

"""The types of a finding. Standard library only: workers make findings too."""

import dataclasses
import typing

from convkit.codec import Json
from convkit.findings.severity import Severity, severity_of

# In place of a severity: the one that belongs to the code.
_FROM_CODE = typing.cast("Severity", "from code")


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

    `severity` follows from the code. A check passes its own only if it measured how grave this one
    is, such as an overflow that reaches no output; the catalogue's entry then says so under
    `varies`. `chain` leads from the cause to the symptom, one step per line, if the check traced
    it.
    """

    code: str
    severity: Severity = dataclasses.field(default=_FROM_CODE, kw_only=True)
    message: str
    place: Place = dataclasses.field(default_factory=Place)
    evidence: dict[str, Json] = dataclasses.field(default_factory=dict)
    remedy: Remedy | None = None
    chain: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.severity == _FROM_CODE:
            object.__setattr__(self, "severity", severity_of(self.code))

    @property
    def is_error(self) -> bool:
        """True for a finding that fails its target."""
        return self.severity == "error"

"""The types of a finding. Standard library only: workers create findings too."""

import dataclasses
import typing

from convkit.protocol.findings.severity import Severity, severity_of
from convkit.protocol.json_codec import Json

# Placeholder for the code's own severity.
_FROM_CODE = typing.cast("Severity", "from code")


@dataclasses.dataclass(frozen=True)
class Place:
    """The location of a finding: tensor, node, module path, source line, case, as far as known."""

    tensor: str | None = None
    node: str | None = None
    module: str | None = None
    source: str | None = None
    case: str | None = None

    def __str__(self) -> str:
        return ", ".join(str(part) for part in dataclasses.astuple(self) if part)


@dataclasses.dataclass(frozen=True)
class Remedy:
    """What to do: in words, and as a recipe change if possible.

    `change` maps key paths of the recipe (`targets.ort-cpu.precision`) to their new values.
    Workers, which do not know their target's name, write `target.precision`. `proven`: convkit has
    tried it on this model, or took it from the original; otherwise it is a guess until a run has
    shown that it helps. `tried`: convkit has tried it, and it is not enough by itself. `refers`:
    it only says where to read on, so there is nothing to try.
    """

    text: str
    change: dict[str, Json] = dataclasses.field(default_factory=dict)
    proven: bool = dataclasses.field(default=False, kw_only=True)
    tried: bool = dataclasses.field(default=False, kw_only=True)
    refers: bool = dataclasses.field(default=False, kw_only=True)

    @property
    def label(self) -> str:
        """What to call it: what nobody has tried on this model is no fix yet."""
        if self.refers:
            return "next"
        if self.proven:
            return "fix"
        return "tried" if self.tried else "untried"


_CAUSE_PROVEN = (
    "Correcting the cause in memory proved it; nothing is changed yet, and this remedy was not run."
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A coded result of a check. `code` is a key of `convkit.host.findings.catalog.CATALOG`.

    `severity` follows from the code. A check passes its own only if it measured the severity, such
    as for an overflow that reaches no output; the catalog's entry then explains this under
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

    @property
    def advice(self) -> tuple[str, str] | None:
        """What to call the remedy, and its text; None without one.

        A cause may be proven by correcting it in memory while its remedy was never run: the two
        are said together, so that neither passes for the other.
        """
        if self.remedy is None:
            return None
        label, text = self.remedy.label, self.remedy.text
        if label != "untried" or self.evidence.get("proven") is not True:
            return label, text
        # Proven by what was seen, such as a number that a type cannot hold.
        was_corrected = self.evidence.get("corrected") is not False
        return "to do", f"{text} {_CAUSE_PROVEN}" if was_corrected else text

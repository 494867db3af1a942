"""Explains every code, why other tools miss it, and the fix: `convkit explain CODE`.

The texts are in one file per family, under `codes/`. Only the host reads them, so they are not part
of any stage's key: rewording a finding rebuilds nothing.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable

from convkit.protocol.findings.finding import Finding
from convkit.protocol.findings.severity import severity_of
from convkit.protocol.json_codec import CodecError, Json, decode

# Codes of this rank and above report wrong results without a cause.
_SYMPTOM = 2


@dataclasses.dataclass(frozen=True)
class CodeExplanation:
    """A code's row in its family's file.

    `missed` explains why other tools miss the problem, and `varies` when the finding's severity
    differs from the code's. `rank` is the distance from the cause: the error with the lowest one
    leads. A finding of this code is a mere consequence if the target also has a finding in
    `follows`. `proof` is what a check changes to show that this is the cause of wrong results: a
    finding without that proof never leads while another error says what is wrong. Codes without it
    state what was measured, or what a tool refused.
    A recipe can waive an error only if it is `waivable`: it is about a built model's results. That
    something is not checked, breaks the contract, or broke cannot be waived.
    """

    title: str
    meaning: str
    missed: str
    remedy: str
    rank: int
    varies: str | None = None
    waivable: bool = False
    follows: tuple[str, ...] = ()
    proof: str = ""

    @property
    def is_symptom(self) -> bool:
        """True for a code that reports wrong results without a cause."""
        return self.rank >= _SYMPTOM


class Catalog(Mapping[str, CodeExplanation]):
    """The explanations by code, from a folder of files.

    A family's file has the name of the family, whose first letter begins its codes. It is read when
    one of these is first asked for: most runs speak of few families or none.

    Raises CodecError that names the code and the field if a row does not fit.
    """

    def __init__(self, folder: Traversable) -> None:
        self._files: dict[str, Traversable] = {}
        for name in sorted(file.name for file in folder.iterdir()):
            if (other := self._files.get(name[0].upper())) is not None:
                raise CodecError(f"{name}: the codes of {other.name} begin with that letter, too")
            self._files[name[0].upper()] = folder.joinpath(name)
        self._families: dict[str, tuple[str, dict[str, CodeExplanation]]] = {}

    def __getitem__(self, code: str) -> CodeExplanation:
        if code[:1] not in self._files:
            raise KeyError(code)
        return self._family(code[0])[1][code]

    def __iter__(self) -> Iterator[str]:
        for letter in self._files:
            yield from self._family(letter)[1]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def families(self) -> dict[str, str]:
        """The families' names by their letter."""
        return {letter: self._family(letter)[0] for letter in self._files}

    def _family(self, letter: str) -> tuple[str, dict[str, CodeExplanation]]:
        if letter not in self._families:
            file = self._files[letter]
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            family, rank = content.pop("family"), content.pop("rank")
            for code in content:
                if code[0] != letter:
                    raise CodecError(f"{file.name}: {code} does not begin with {letter}")
            rows = {
                code: decode(CodeExplanation, {"rank": rank, **_unwrapped(fields)}, code)
                for code, fields in content.items()
            }
            self._families[letter] = family, rows
        return self._families[letter]


def _unwrapped(fields: dict[str, Json]) -> dict[str, Json]:
    """Join the lines that a file wraps."""
    return {
        name: " ".join(value.split()) if isinstance(value, str) else value
        for name, value in fields.items()
    }


CATALOG = Catalog(resources.files("convkit.host.findings").joinpath("codes"))


def rank_of(code: str) -> int:
    """Return a code's distance from the cause; an unknown code, from a newer record, is a cause."""
    return CATALOG[code].rank if code in CATALOG else 0


def is_symptom(code: str) -> bool:
    """Return whether a code reports wrong results without a cause."""
    return code in CATALOG and CATALOG[code].is_symptom


def is_unproven(finding: Finding) -> bool:
    """Return whether a finding names a cause that nothing has confirmed: its check says so, or its
    code needs a proof that the finding does not have.
    """
    proven = finding.evidence.get("proven")
    known = CATALOG.get(finding.code)
    return proven is False or (known is not None and bool(known.proof) and proven is not True)


def causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return one target's findings with errors first, and among those the cause first.

    Consequences come last, such as an output that collapsed because a tensor overflowed. A finding
    whose severity varies causes others only if it was measured to be an error.
    """
    causes = {
        finding.code
        for finding in findings
        if finding.is_error or (finding.code in CATALOG and not CATALOG[finding.code].varies)
    }

    def distance(finding: Finding) -> tuple[bool, bool, int]:
        known = CATALOG.get(finding.code)
        follows = known is not None and not causes.isdisjoint(known.follows)
        return not finding.is_error, follows, rank_of(finding.code)

    return sorted(findings, key=distance)


def severity_text(code: str) -> str:
    """Return a code's severity and, if it varies, when: `note. An error if ...`."""
    varies = CATALOG[code].varies
    return severity_of(code) if varies is None else f"{severity_of(code)}. {varies}"

"""How grave each finding is, by its code. Nothing else in convkit says so.

A worker decides by severities, so they belong to the code that stages' keys cover. What the codes
mean is prose, which no key should cover, and is elsewhere (`convkit.host.findings.catalog`).
"""

from typing import Literal

Severity = Literal["error", "warning", "note"]

# A code that is in neither table is an error: a finding that somebody forgot to place here fails
# its target instead of passing unnoticed.
_WARNINGS = frozenset(
    {
        *("C112", "C116", "N204", "N211", "N215", "N303", "N305", "N306", "N409"),
        *("T104", "T106", "V105"),
        *("E101", "E102", "E209", "E237", "E306", "E312", "E402", "Q102", "Q105", "Q106"),
        *("R101", "R103", "R111"),
        *("C401", "C402", "C579", "N501", "N502", "N503", "N504", "N511", "N513", "N514"),
        *("N702", "N704"),
    }
)
_NOTES = frozenset(
    {
        "C302",
        "C303",
        "C304",
        "N201",
        "N208",
        "N210",
        "N212",
        "N213",
        "N216",
        "E212",
        "E216",
        "E240",
        "E241",
        "Q107",
        "Q110",
        "Q111",
        "Q112",
        "Q113",
        "R102",
        "N307",
        "N505",
        "E303",
        "E307",
        "E308",
        "E309",
        "N507",
        "N508",
        "N515",
        "N516",
    }
)


def severity_of(code: str) -> Severity:
    """Return the severity of a code, which a finding has unless its check says otherwise."""
    if code in _NOTES:
        return "note"
    return "warning" if code in _WARNINGS else "error"

"""Every code that can lead either names a proof, or states what needs none."""

import re
from pathlib import Path

import pytest

import convkit
from convkit.host.findings.catalog import CATALOG, is_unproven
from convkit.protocol.findings.finding import Finding
from convkit.protocol.findings.severity import severity_of

PACKAGE = Path(convkit.__file__).parent
# Codes that lead as they are, by what makes a counterfactual pointless. Add a code here only if its
# finding would be right whatever else is wrong with the model; otherwise give its row a `proof`.
FACTS = {
    "the recipe and the model, file or original contradict each other": """
        C101 C102 C103 C104 C105 C106 C107 C111 C113 C201 C202 C203 C204 C205 C206 C207 C301
        C520 C521 C522 C523 C524 C525 C526 C527 C570 C571 C572 C573 C574 C575 C576
        E310 E320 N206 R110""",
    "both models were run, and one of them does this": """
        C108 C114 C501 C510 E323 E401 N103 N301 N302 N303 N502 N620 N621 N703 T108 N209""",
    "a tool, a runtime or the machine refused": """
        E101 E201 E202 E203 E205 E206 E210 E213 E215 E301 E304 E305 E311 E321 E322 E410 E411 E412
        E420 T101 T102 T103 T105 T107 V101 V102 V103 V104 V106""",
    "nothing is built from such a file, or it is not what was asked for": """
        E207 E211 E214 E231 E232 E233 E234 E235 E236 E238 E239 N207 Q101 Q103 Q104 Q106""",
}
CLAIMS = {code for code, row in CATALOG.items() if row.proof}
_DIAGNOSIS = "worker/precision/diagnosis"
# Where the finding is made of codes that another module chooses.
MAKES_THE_FINDING = {
    "worker/join/value_conventions.py": "worker/join/part_agreement.py",
    "worker/join/other_wirings.py": "worker/join/part_agreement.py",
    f"{_DIAGNOSIS}/diagnosis_messages.py": f"{_DIAGNOSIS}/low_precision_findings.py",
}


# They read codes and make no finding of them.
READERS = (
    "host/findings/",
    "protocol/findings/",
    "host/verdict/cause_preference",
    "host/verdict/findings/changed_results",
    "host/verdict/float32_resolution",
    "host/run/failure_causes",
    "host/recipe/",
    "worker/verification/other_exporter",
)


def test_a_code_that_can_lead_has_a_proof_or_needs_none() -> None:
    can_lead = {
        code
        for code, row in CATALOG.items()
        if (severity_of(code) == "error" or row.varies) and not row.is_symptom
    }
    facts = {code for codes in FACTS.values() for code in codes.split()}
    assert not facts & CLAIMS
    assert can_lead - CLAIMS == facts


@pytest.mark.parametrize("code", sorted(CLAIMS))
def test_every_check_of_a_cause_says_whether_it_is_proven(code: str) -> None:
    places = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(rf'"{code}"', path.read_text(encoding="utf-8"))
    ]
    makers = {
        MAKES_THE_FINDING.get(place, place) for place in places if not place.startswith(READERS)
    }
    assert makers
    for maker in makers:
        text = (PACKAGE / maker).read_text(encoding="utf-8")
        says = ('"proven"', "guilty_origins import", "findings_of", "with_experiments")
        assert any(each in text for each in says), maker


@pytest.mark.parametrize(
    ("code", "evidence", "unproven"),
    [
        ("N405", {}, True),
        ("N405", {"proven": True}, False),
        ("N405", {"proven": "yes"}, True),
        ("C106", {}, False),
        ("C106", {"proven": False}, True),
        ("N101", {}, False),
        ("X999", {}, False),
    ],
)
def test_a_cause_needs_its_proof(code: str, evidence: dict, unproven: bool) -> None:
    assert is_unproven(Finding(code, "m", evidence=evidence, severity="error")) is unproven

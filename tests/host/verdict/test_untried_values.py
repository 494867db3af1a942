"""A target is unproven if its original reads a value that no case changes."""

import pytest

from convkit.host.verdict.target_reports import _from_findings
from convkit.protocol.findings.finding import Finding, Place

UNTRIED = Finding("N513", "reads a value", Place(source="net.py:9"))
WRONG = Finding("N303", "keeps a length", Place(), severity="error")


@pytest.mark.parametrize(
    ("findings", "status", "added"),
    [
        ([UNTRIED], "verified", ["unproven"]),
        ([], "verified", []),
        ([UNTRIED], "failed", []),
        ([UNTRIED, WRONG], "verified", ["failed"]),
        ([WRONG], "broken", []),
    ],
)
def test_what_findings_before_a_verification_add_to_its_status(findings, status, added):
    assert _from_findings(findings, [status]) == added

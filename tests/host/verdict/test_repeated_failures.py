"""One mistake in a recipe breaks several stages; it is reported once."""

import dataclasses

import pytest
from records import build_record

from convkit.host.verdict.target_reports import Finished, own_findings
from convkit.protocol.findings.finding import Finding, Place

REFUSED = Finding("E204", "reference: the original model refuses case 'smallest'")


def stage(kind: str, *findings: Finding) -> Finished:
    report = dataclasses.replace(build_record().stages[0], kind=kind, findings=findings)
    return Finished(report, None)


@pytest.mark.parametrize("code", ["E410", "C105"])
def test_a_refusal_that_the_export_explains_is_not_a_failed_tool_too(code):
    export = stage("export", Finding(code, "wrong inputs", Place(tensor="x")))
    assert list(own_findings(stage("reference", REFUSED), export)) == []


def test_any_other_failure_of_the_reference_is_kept():
    reference = stage("reference", REFUSED)
    assert list(own_findings(reference, stage("export", Finding("C106", "fixed")))) == [REFUSED]
    assert list(own_findings(reference, None)) == [REFUSED]
    build = stage("build", REFUSED)
    assert list(own_findings(build, stage("export", Finding("E410", "wrong")))) == [REFUSED]

"""What explains a case that passes explains no other one."""

import dataclasses

import pytest

from convkit.host.record.run_record import CaseVerdict
from convkit.host.verdict.counted_explanations import relevant_findings
from convkit.protocol.findings.finding import Finding, Place

FAILED = CaseVerdict("largest", "", {}, passed=False, seconds=0.1, outputs=())
PASSED = dataclasses.replace(FAILED, case="smallest", passed=True)


@pytest.mark.parametrize(("case", "kept"), [("largest", True), ("smallest", False)])
def test_an_optimization_matters_only_in_a_case_that_fails(case: str, kept: bool) -> None:
    finding = Finding("N401", "optimized", Place(case=case))
    assert relevant_findings([finding], [PASSED, FAILED], []) == [finding] * kept


def test_nothing_is_explained_if_every_case_passes() -> None:
    assert relevant_findings([Finding("N402", "wrong", Place(case="smallest"))], [PASSED], []) == []

"""What explains a case that passes explains no other one."""

import dataclasses

import numpy as np
import pytest

from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.counted_explanations import relevant_findings
from convkit.protocol.findings.finding import Finding, Place
from convkit.worker.metrics.tensor_metrics import compare

FAILED = CaseVerdict("largest", "", {}, passed=False, seconds=0.1, outputs=())
PASSED = dataclasses.replace(FAILED, case="smallest", passed=True)


@pytest.mark.parametrize(("case", "kept"), [("largest", True), ("smallest", False)])
def test_an_optimization_matters_only_in_a_case_that_fails(case: str, kept: bool) -> None:
    finding = Finding("N401", "optimized", Place(case=case))
    assert relevant_findings([finding], [PASSED, FAILED], []) == [finding] * kept


def test_nothing_is_explained_if_every_case_passes() -> None:
    assert relevant_findings([Finding("N402", "wrong", Place(case="smallest"))], [PASSED], []) == []


@pytest.mark.parametrize(("case", "kept"), [("typical", True), ("extreme", False)])
def test_what_quantization_costs_counts_where_something_is_judged(case: str, kept: bool) -> None:
    metrics = compare("y", np.ones(3), np.ones(3))
    typical, extreme = (
        dataclasses.replace(PASSED, case=name, outputs=(judged,))
        for name, judged in (
            ("typical", OutputVerdict("y", True, (), {"nrmse": 0.2}, metrics)),
            ("extreme", OutputVerdict("y", True, (), {}, metrics)),
        )
    )
    finding = Finding("Q102", "changes outputs", Place(case=case))
    assert relevant_findings([finding], [typical, extreme], []) == [finding] * kept
    assert relevant_findings([finding], [extreme], []) == [finding]  # a score decides

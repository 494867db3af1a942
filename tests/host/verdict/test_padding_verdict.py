"""Errors that only concern padding are named as such, and nothing else is."""

import dataclasses
import math

import pytest
from records import tensor_metrics
from small_recipe import recipe

from convkit.host.verdict.target_verdict import judge
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    ReferenceResult,
    UnpaddedMetrics,
    VerifyResult,
)

SIZES = {"batch": 2, "sequence": 8}
WITHIN = tensor_metrics(1e-5, output="y")
OFF = tensor_metrics(3e-4, output="y")  # the recipe's limit is 1e-4


def verdict(*cases, stage_findings=()):
    names = [case.case for case in cases]
    known = ReferenceResult(
        tuple(CaseRecord(name, "ladder", name, SIZES, 0.1) for name in names), ()
    )
    chosen = recipe()
    measured = VerifyResult("device", None, ("CPU",), (), cases, (), ())
    return judge(
        chosen,
        chosen.targets["ort"],
        known,
        measured,
        stage="verify:ort",
        version=None,
        stage_findings=stage_findings,
    )


def case(name, metrics, unpadded=None, error=None):
    outputs = () if error else (metrics,)
    without = () if unpadded is None else (UnpaddedMetrics("mask", unpadded),)
    return CaseMetrics(name, 0.1, outputs, error, without)


def test_an_error_at_padding_alone_leads_and_suggests_a_mask():
    result = verdict(
        case("typical", WITHIN), case("padded", OFF, WITHIN), case("ragged", OFF, WITHIN)
    )
    assert result.status == "failed"
    assert result.leading is not None
    assert result.leading.code == "N506"
    assert "by 0.0003 there, and by 1e-05 elsewhere" in result.leading.message
    assert result.leading.evidence["cases"] == ["padded", "ragged"]
    assert result.leading.remedy is not None
    assert result.leading.remedy.change == {"outputs.0.mask": "mask"}
    assert {finding.code for finding in result.findings} == {"N506", "N101"}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(case("largest", OFF), id="fails-elsewhere-too"),
        pytest.param(case("ragged", OFF, OFF), id="real-positions-fail-too"),
        pytest.param(
            case("ragged", OFF, dataclasses.replace(WITHIN, max_abs=math.nan)), id="unknown"
        ),
        pytest.param(
            case("ragged", OFF, dataclasses.replace(WITHIN, nan_candidate=3)), id="nan-at-padding"
        ),
        pytest.param(
            case("ragged", OFF, dataclasses.replace(WITHIN, elements=0)), id="nothing-is-real"
        ),
        pytest.param(case("largest", OFF, error="out of memory"), id="a-case-that-did-not-run"),
    ],
)
def test_any_other_failure_is_no_matter_of_padding(other):
    result = verdict(case("padded", OFF, WITHIN), other)
    assert result.status == "failed"
    assert "N506" not in {finding.code for finding in result.findings}


def test_a_guess_is_left_out_beside_it():
    guess = Finding("N402", "the graph differs", Place(case="padded"))
    guessed = verdict(case("padded", OFF), stage_findings=[guess])
    assert "N402" in {finding.code for finding in guessed.findings}
    proven = verdict(case("padded", OFF, WITHIN), stage_findings=[guess])
    assert "N402" not in {finding.code for finding in proven.findings}


@pytest.mark.parametrize(
    ("code", "kind", "leading"), [("N407", "wiring", "N407"), ("N408", "place", "N506")]
)
def test_a_proven_cause_says_more_than_that_it_is_at_padding(code, kind, leading):
    """A place alone says less: two right kernels may differ there."""
    found = Finding(code, "found by a search", Place(), {"kind": kind, "proven": True})
    cases = case("typical", WITHIN), case("padded", OFF, WITHIN)
    result = verdict(*cases, stage_findings=(found,))
    assert result.leading is not None
    assert result.leading.code == leading
    assert {finding.code for finding in result.findings} >= {"N506", code}

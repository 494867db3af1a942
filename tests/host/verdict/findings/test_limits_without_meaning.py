"""Limits beside the values that were met, labels, and branches on sizes."""

import dataclasses
import math
from typing import Any

import pytest
from records import tensor_metrics
from small_recipe import recipe

from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.limits_without_meaning import limit_findings
from convkit.host.verdict.findings.one_sided_branch import branch_findings
from convkit.host.verdict.target_verdict import judge
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    ReferenceResult,
    SizeBranch,
    VerifyResult,
)


def case(limits: dict[str, float], rms: float, largest: float, name: str = "typical"):
    metrics = dataclasses.replace(
        tensor_metrics(0.0, cosine=1.0), output="y", reference_rms=rms, reference_max=largest
    )
    output = OutputVerdict("y", True, (), limits, metrics, ())
    return CaseVerdict(name, name, {}, True, 0.1, (output,))


def codes(*cases: CaseVerdict, **target: Any) -> list[str]:
    chosen = recipe(targets={"t": {"runtime": "onnxruntime", **target}})
    return [finding.code for finding in limit_findings(chosen, chosen.targets["t"], cases)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_abs": 0.3}, ["N501"]),
        ({"max_abs": 0.2}, ["N501"]),
        ({"max_abs": 0.1}, []),
        ({"rms": 0.5, "cosine": 0.9}, ["N501"]),
        ({"max_rel": 5.0, "cosine": 0.9}, []),
        ({"cosine": 0.9}, []),
    ],
)
def test_a_limit_larger_than_the_output(limits: dict[str, float], expected: list[str]) -> None:
    assert codes(case(limits, rms=0.2, largest=1.0)) == expected
    # The case with the largest output counts.
    assert codes(case(limits, rms=0.2, largest=1.0), case(limits, rms=9.0, largest=20.0)) == []


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"nrmse": 1.0}, ["N501"]),
        ({"max_rel": 5.0}, ["N501"]),
        ({"nrmse": 0.9}, []),
        ({"nrmse": 1.0, "cosine": 0.9}, []),
        ({"nrmse": 1.0, "max_abs": 9.0}, ["N501"]),
        ({"nrmse": 1e-9}, ["N502"]),
        ({"nrmse": 1e-6}, []),
        ({"nrmse": 0.0}, []),
        ({"rms": 1e-9}, ["N502"]),
        ({"rms": 1e-6}, []),
    ],
)
def test_limits_in_parts_and_on_averages(limits: dict[str, float], expected: list[str]) -> None:
    assert codes(case(limits, rms=0.2, largest=1.0)) == expected


@pytest.mark.parametrize(
    ("limits", "target", "expected"),
    [
        ({"max_abs": 1e-4}, {}, ["N502"]),
        ({"max_abs": 1e-3}, {}, []),
        ({"max_abs": 0.0}, {}, []),  # equality is meant
        ({"atol": 1e-4, "rtol": 1e-5}, {}, []),
        ({"max_abs": 1.0}, {"precision": "float16"}, ["N502"]),
        ({"max_abs": 5.0}, {"precision": "float16"}, []),
    ],
)
def test_a_limit_below_the_output_s_own_steps(
    limits: dict[str, float], target: dict[str, Any], expected: list[str]
) -> None:
    assert codes(case(limits, rms=1000.0, largest=3000.0), **target) == expected


def test_older_records_say_nothing() -> None:
    assert codes(case({"max_abs": 1e9}, rms=math.nan, largest=math.nan)) == []


def labels(agreement: float, **tolerance: Any) -> Any:
    chosen = recipe(
        outputs=[{"name": "y", "dtype": "int64", "shape": ["batch", "sequence"]}], **tolerance
    )
    metrics = dataclasses.replace(
        tensor_metrics(0.0 if agreement == 1.0 else 3.0, cosine=0.9),
        output="y",
        agreement=agreement,
    )
    return judge(
        chosen,
        chosen.targets["ort"],
        ReferenceResult((CaseRecord("typical", "ladder", "typical", {}, 0.1),), ()),
        VerifyResult(
            "device", None, ("CPU",), (), (CaseMetrics("typical", 0.1, (metrics,)),), (), ()
        ),
        stage="verify:ort",
        version=None,
    )


def test_labels_are_judged_by_agreement() -> None:
    assert labels(1.0).status == "verified"
    failed = labels(0.99)
    assert failed.status == "failed"
    assert "agreement 0.99 < 1" in failed.headline
    assert labels(math.nan).status == "failed"
    allowed = {"verify": {"tolerance": {"max_abs": 1e-4, "agreement": 0.98}}}
    assert labels(0.99, **allowed).status == "verified"
    assert labels(0.97, **allowed).status == "failed"
    own = {"verify": {"outputs": {"y": {"max_abs": 5.0}}}}
    assert labels(0.5, **own).status == "unproven"  # labels 5 apart would pass


def branch(outcomes: dict[str, bool], passed: dict[str, bool], place: str = "model.py:7"):
    reference = ReferenceResult((), (), branches=(SizeBranch(place, outcomes),))
    cases = [CaseVerdict(name, name, {"sequence": 9}, ok, 0.1, ()) for name, ok in passed.items()]
    return branch_findings(reference, cases)


def test_a_branch_that_tells_failing_cases_from_others() -> None:
    (finding,) = branch({"a": True, "b": False, "c": False}, {"a": True, "b": False, "c": False})
    assert finding.code == "E302"
    assert finding.place.source == "model.py:7"
    assert finding.place.case == "b"
    (node,) = branch({"a": True, "b": False}, {"a": True, "b": False}, "node n3 (Greater)")
    assert (node.place.node, node.place.source) == ("n3", None)


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        ({"a": True, "b": False}, {"a": True, "b": True}),
        ({"a": True, "b": False}, {"a": False, "b": False}),
        ({"a": True, "b": False, "c": False}, {"a": True, "b": False, "c": True}),
        ({"a": True, "b": False}, {"a": True, "b": False, "unknown": False}),
        ({"a": True, "b": True}, {"a": True, "b": False}),
    ],
)
def test_a_branch_that_does_not(outcomes: dict[str, bool], passed: dict[str, bool]) -> None:
    assert branch(outcomes, passed) == []

"""A target that a wrong model would have passed is not verified."""

import dataclasses
import math

import numpy as np
import pytest
from small_recipe import recipe

from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.limits_without_meaning import limit_findings
from convkit.host.verdict.findings.nothing_judged import is_unproven, unjudged_findings
from convkit.protocol.messages import EvaluationMetrics, OmittedCase
from convkit.worker.metrics.tensor_metrics import compare

RIGHT = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
ASKED = {
    "data": "rows.npz", "inputs": {"ids": "ids"}, "labels": "l", "metric": "accuracy",
    "max_drop": 0.02,
}  # fmt: skip
SCORED = EvaluationMetrics("accuracy", 100, 0.9, 0.9, 0.0, 0.0, 0.0, shuffled=0.4)


def judged(limits: dict[str, float], found: np.ndarray, count: int = 1) -> list[CaseVerdict]:
    output = OutputVerdict("y", True, (), limits, compare("y", RIGHT, found))
    return [CaseVerdict(f"case-{n}", "", {}, True, 0.1, (output,)) for n in range(count)]


def codes(limits: dict[str, float], found: np.ndarray) -> list[str]:
    made = recipe(verify={"tolerance": {"max_abs": 1.0}})
    cases = judged(limits, found)
    findings = [
        *limit_findings(made, made.targets["ort"], cases),
        *unjudged_findings(made, made.targets["ort"], cases, (), None),
    ]
    return [each.code for each in findings if is_unproven(each)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_abs": 1e-4}, []),
        ({"max_abs": 100.0}, ["N501"]),
        ({"max_abs": 100.0, "ulps": 10.0}, ["N501"]),
        ({"max_abs": 100.0, "cosine": 0.99}, []),  # zeros have no direction
        ({"max_abs": 100.0, "cosine": -0.5}, ["N501"]),
        ({"nrmse": 1.0}, ["N501"]),
        ({}, ["N511"]),
    ],
)
def test_limits_that_zeros_meet_prove_nothing(limits, expected):
    assert codes(limits, RIGHT) == expected


@pytest.mark.parametrize(
    ("limits", "off", "expected"),
    [
        ({"max_abs": 1.0}, 16, ["N511"]),  # each label is the next one
        ({"max_abs": 1.0}, 1, []),
        ({"agreement": 0.9}, 16, []),
        ({"max_abs": 0.5}, 16, []),
    ],
)
def test_a_distance_between_labels_proves_nothing(limits, off, expected):
    made = recipe(outputs=[{"name": "y", "dtype": "int64", "shape": ["batch", "sequence", 4]}])
    labels = np.arange(16).reshape(4, 4)
    found = (labels.reshape(-1) + (np.arange(16) < off)).reshape(4, 4)
    output = OutputVerdict("y", True, (), limits, compare("y", labels, found))
    cases = [CaseVerdict("typical", "", {}, True, 0.1, (output,))]
    codes = [
        each.code
        for each in unjudged_findings(made, made.targets["ort"], cases, (), None)
        if is_unproven(each)
    ]
    assert codes == expected


def test_cases_without_limits_say_nothing_of_those_that_have_some():
    made = recipe(outputs=[{"name": "y", "dtype": "int64", "shape": ["batch", "sequence", 4]}])
    labels = np.arange(16).reshape(4, 4)
    right = OutputVerdict("y", True, (), {"agreement": 0.9}, compare("y", labels, labels))
    free = OutputVerdict("y", True, (), {}, compare("y", labels, labels + 1))
    wide = OutputVerdict("y", True, (), {"max_abs": 8.0}, compare("y", labels, labels))

    def found(*outputs: OutputVerdict) -> list[str]:
        cases = [CaseVerdict(f"case-{n}", "", {}, True, 0.1, (each,)) for n, each in
                 enumerate(outputs)]  # fmt: skip
        return [each.code for each in unjudged_findings(made, made.targets["ort"], cases, (), None)]

    assert found(right, free) == []
    assert found(wide, free) == ["N511"], "one number meets every limit that there is"


@pytest.mark.parametrize(("factor", "expected"), [(1.001, []), (1.5, ["N511"]), (0.1, ["N511"])])
def test_a_cosine_alone_proves_nothing_about_a_wrong_scale(factor, expected):
    assert codes({"cosine": 0.999}, RIGHT * np.float32(factor)) == expected
    assert codes({"cosine": 0.999, "rms": 0.1}, RIGHT * np.float32(factor)) == []


@pytest.mark.parametrize(
    ("limits", "factor", "expected"),
    [
        ({"cosine": 0.97}, 1.2, ["N511"]),  # less than the limit's angle, and no angle at all
        ({"cosine": 0.97}, 1.01, []),
        ({"cosine": 0.99, "max_abs": 100.0}, 1.5, ["N511"]),
        ({"cosine": 0.99, "nrmse": 1.0}, 1.5, ["N511"]),
        ({"cosine": 0.99, "max_abs": 100.0, "ulps": 8.0}, 1.5, ["N511"]),
        ({"cosine": 0.99, "max_abs": 0.5}, 1.2, []),
    ],
)
def test_a_cosine_beside_limits_that_judge_nothing_is_alone(limits, factor, expected):
    assert codes(limits, RIGHT * np.float32(factor)) == expected


@pytest.mark.parametrize(
    ("usual", "expected"),
    [(1.0, []), (0.01, ["N511"])],
    ids=["large elsewhere", "small throughout"],
)
def test_a_limit_judges_an_output_that_is_small_in_some_cases(usual, expected):
    """The smaller case is wrong by half of its values, of which rounding may make as much."""
    limits = {"max_abs": 0.1, "cosine": 0.999}
    cases = []
    for name, size, factor in (("small", 0.01, 1.5), ("usual", usual, 1.0)):
        right = RIGHT * np.float32(size)
        metrics = compare("y", right, right * np.float32(factor))
        output = OutputVerdict("y", True, (), limits, metrics)
        cases.append(CaseVerdict(name, "", {}, True, 0.1, (output,)))
    made = recipe(verify={"tolerance": {"max_abs": 1.0}})
    found = unjudged_findings(made, made.targets["ort"], cases, (), None)
    assert [each.code for each in found] == expected


def test_a_cosine_alone_judges_an_error_that_has_no_direction():
    noise = np.random.default_rng(1).standard_normal(RIGHT.shape).astype(np.float32)
    for size in (1e-6, 1e-3, 0.05, 0.15):
        assert codes({"cosine": 0.97}, RIGHT + np.float32(size) * noise) == []


@pytest.mark.parametrize(("left", "expected"), [(4, []), (1, ["N511"])])
def test_skipping_nearly_all_cases_proves_nothing(left, expected):
    skipped = ["typical", "largest", "off-typical", "batch", "extreme"]
    made = recipe(verify={"skip": skipped})
    omitted = [OmittedCase(name, "skipped by the recipe (verify.skip)") for name in skipped]
    cases = judged({"max_abs": 1e-4}, RIGHT, left)
    found = unjudged_findings(made, made.targets["ort"], cases, omitted, None)
    assert [each.code for each in found] == expected


NEAR_ONE = (1 + 0.01 * np.tanh(RIGHT)).astype(np.float32)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_abs": 0.5}, ["N511"]),
        ({"max_abs": 0.5, "cosine": 0.999}, ["N511"]),
        ({"max_abs": 0.5, "ulps": 4.0}, ["N511"]),
        ({"atol": 0.0, "rtol": 0.05}, ["N511"]),
        ({"nrmse": 0.05}, ["N511"]),
        ({"rms": 0.02}, ["N511"]),
        ({"max_abs": 0.5, "rms": 1e-4}, []),
        ({"max_abs": 0.001}, []),
        ({"cosine": 0.9999999}, []),
    ],
)
def test_limits_wider_than_what_an_output_varies_by_prove_nothing(limits, expected):
    made = recipe(verify={"tolerance": {"max_abs": 1.0}})
    output = OutputVerdict("y", True, (), limits, compare("y", NEAR_ONE, NEAR_ONE))
    cases = [CaseVerdict("typical", "", {}, True, 0.1, (output,))]
    found = unjudged_findings(made, made.targets["ort"], cases, (), None)
    assert [each.code for each in found] == expected


LABELS = np.arange(40).reshape(4, 10) % 10


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"atol": 1e-5, "rtol": 1.0}, ["N511"]),
        ({"atol": 9.0, "rtol": 0.1}, ["N511"]),
        ({"max_abs": 1e-4, "ulps": 1e8}, ["N511"]),
        ({"ulps": 1e8}, ["N511"]),
        ({"max_rel": 1.0, "ulps": 1e8}, ["N511"]),
        ({"atol": 1e-5, "rtol": 0.5}, []),
        ({"max_abs": 1e-4, "ulps": 1e4}, []),
        ({"max_rel": 1.0, "max_abs": 0.1}, []),
    ],
)
def test_limits_that_zeros_meet_only_together_prove_nothing(limits, expected):
    assert codes(limits, RIGHT) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"agreement": 1.0}, []),
        ({"agreement": 0.2}, []),
        ({"agreement": 0.1}, ["N511"]),  # ten labels
        ({"max_abs": 1000.0}, ["N501"]),
    ],
)
def test_limits_that_any_labels_meet_prove_nothing(limits, expected):
    made = recipe(
        outputs=[{"name": "y", "dtype": "int64", "shape": ["batch", 10]}],
        verify={"outputs": {"y": limits}},
    )
    output = OutputVerdict("y", True, (), limits, compare("y", LABELS, LABELS))
    cases = [CaseVerdict("typical", "", {}, True, 0.1, (output,))]
    findings = [
        *limit_findings(made, made.targets["ort"], cases),
        *unjudged_findings(made, made.targets["ort"], cases, (), None),
    ]
    assert [each.code for each in findings if is_unproven(each)] == expected


@pytest.mark.parametrize("second", [3, 4])
def test_a_label_that_is_another_in_another_case_is_judged(second):
    limits = {"agreement": 0.5}
    rows = [np.full((1, 1), 3), np.full((1, 1), second)]
    measured = [OutputVerdict("y", True, (), limits, compare("y", row, row)) for row in rows]
    cases = [
        CaseVerdict(f"case-{n}", "", {}, True, 0.1, (each,)) for n, each in enumerate(measured)
    ]
    made = recipe(verify={"tolerance": {"max_abs": 1.0}})
    assert unjudged_findings(made, made.targets["ort"], cases, (), None) == []


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_an_output_that_is_the_same_everywhere_is_judged(factor):
    same = np.full((4, 8), factor, np.float32)
    output = OutputVerdict("y", True, (), {"max_abs": 0.5}, compare("y", same, same))
    cases = [CaseVerdict("typical", "", {}, True, 0.1, (output,))]
    made = recipe()
    assert unjudged_findings(made, made.targets["ort"], cases, (), None) == []


def test_an_output_that_varies_between_cases_is_judged():
    cases = []
    for factor in (1.0, 5.0):
        values = np.float32(factor) * NEAR_ONE
        output = OutputVerdict("y", True, (), {"max_abs": 0.5}, compare("y", values, values))
        cases.append(CaseVerdict(f"at {factor}", "", {}, True, 0.1, (output,)))
    made = recipe()
    assert unjudged_findings(made, made.targets["ort"], cases, (), None) == []


@pytest.mark.parametrize(("budget", "expected"), [(None, []), (0.001, ["N511"])])
def test_a_budget_for_hardly_any_case_proves_nothing(budget, expected):
    names = ["typical", "largest", "off-typical", "batch", "extreme"]
    omitted = [OmittedCase(name, "would take about 1 s") for name in names]
    cases = judged({"max_abs": 1e-4}, RIGHT, 1)
    made = recipe(verify={} if budget is None else {"budget": budget})
    found = unjudged_findings(made, made.targets["ort"], cases, omitted, None)
    assert [each.code for each in found] == expected
    unable = [dataclasses.replace(each, applies=False) for each in omitted]
    assert not unjudged_findings(made, made.targets["ort"], cases, unable, None)


@pytest.mark.parametrize(("error", "expected"), [(1e-6, []), (0.1, ["N511"])])
def test_an_output_beside_the_scored_one_is_judged_by_its_type(error, expected):
    outputs = [{"name": name, "dtype": "float32", "shape": ["batch", 8]} for name in ("z", "y")]
    made = recipe(evaluate=ASKED, verify={}, outputs=outputs)
    cases = judged({}, RIGHT + np.float32(error))
    found = unjudged_findings(made, made.targets["ort"], cases, (), SCORED)
    assert [each.code for each in found] == expected


@pytest.mark.parametrize(
    ("changes", "asked", "expected"),
    [
        ({}, {}, []),
        ({}, {"max_drop": 1.0}, ["N704"]),
        ({}, {"max_drop": 0.9}, ["N704"]),
        ({}, {"max_drop": 0.5}, ["N704"]),  # what is left is what chance gives
        ({}, {"max_drop": 0.4}, []),
        ({"shuffled": 0.9}, {}, ["N704"]),
        ({"shuffled": 0.95}, {}, ["N704"]),
        ({"shuffled": math.nan}, {}, []),
        ({"rises": True, "shuffled": 1.0}, {}, []),
        ({"rises": True, "shuffled": 0.8}, {}, ["N704"]),
    ],
)
def test_a_score_that_any_model_has_proves_nothing(changes, asked, expected):
    made = recipe(evaluate=ASKED | asked, verify={})
    scored = dataclasses.replace(SCORED, **changes)
    found = unjudged_findings(made, made.targets["ort"], judged({}, RIGHT), (), scored)
    assert [each.code for each in found] == expected
    both = recipe(evaluate=ASKED | asked)  # a tolerance decides as well
    assert not unjudged_findings(both, both.targets["ort"], judged({"rms": 1.0}, RIGHT), (), scored)

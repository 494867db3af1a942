import dataclasses

import pytest
from records import (
    CROSSED,
    DIFFERS,
    build_record,
    failed_target,
    skipped_target,
    verified_record,
    verified_target,
)
from svg import description, parse

from convkit.host.report.report_view import run_view, sentence
from convkit.protocol.findings.finding import Finding, Place


def named(target, *names):
    return tuple(dataclasses.replace(target, name=name) for name in names)


def simulated(target):
    verifications = tuple(
        dataclasses.replace(each, evidence="simulated") for each in target.verifications
    )
    return dataclasses.replace(target, verifications=verifications)


GOOD, BAD, ABSENT = verified_target(), failed_target(), skipped_target()
BY_TASK = dataclasses.replace(
    GOOD,
    verifications=tuple(
        dataclasses.replace(each, decided_by="task metric") for each in GOOD.verifications
    ),
)
BROKEN = dataclasses.replace(GOOD, status="broken")


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ((), "No target was built."),
        ((GOOD,), "The target matches the original within the tolerance."),
        (
            (simulated(GOOD),),
            "The target matches the original within the tolerance, in simulation only.",
        ),
        (named(GOOD, "a", "b"), "Both targets match the original within the tolerance."),
        (
            (GOOD, *named(simulated(GOOD), "sim")),
            (
                "Both targets match the original within the tolerance: 1 on the device, 1 in"
                " simulation only ('sim')."
            ),
        ),
        ((BY_TASK,), "The target keeps the original's score on the task."),
        (
            (GOOD, *named(BY_TASK, "task")),
            "Both targets match the original within the tolerance or keep its score on the task.",
        ),
        ((BAD,), "The target 'ort-optimized' failed verification."),
        (
            (GOOD, BAD, ABSENT),
            (
                "1 of 3 targets failed verification: 'ort-optimized'; 1 was skipped: 'ort-cuda';"
                " 1 matches the original within the tolerance."
            ),
        ),
        (
            named(BROKEN, *"abcde"),
            "None of 5 targets could be built or verified: 'a', 'b', 'c' and 2 more.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(targets, text):
    assert sentence(build_record(targets=targets)) == text


def test_a_failed_target_has_the_way_from_its_cause_to_the_first_failing_output():
    finding = dataclasses.replace(CROSSED, chain=("Add in layer", "... 3 more operators"))
    view = run_view(build_record(targets=(dataclasses.replace(BAD, leading=finding),)))
    (target,) = view.targets
    assert target.path is not None
    boxes = [
        group.attrib["class"]
        for group in parse(target.path.svg).iter("g")
        if group.attrib["class"].startswith("box")
    ]
    assert boxes == ["box cause", "box step", "box gap", "box output"]
    assert description(target.path.svg) == (
        "Cause: C110 inputs are swapped input_ids Then: Add in layer Then: ... 3 more operators"
        " Then: Symptom: output last_hidden_state max_abs 0.31 > 0.0001 in case typical"
    )


@pytest.mark.parametrize(
    ("evidence", "proven"),
    [
        ({"proven": True, "before": 1.5, "after": 2e-7}, True),
        ({"proven": False, "before": 1.5, "after": 2e-7}, False),
        ({"proven": True, "before": "inf", "after": 2e-7}, False),
    ],
)
def test_the_proof_is_drawn_only_where_there_is_one(evidence, proven):
    finding = Finding("N405", "epsilon is off", Place(module="norm"), evidence)
    (target,) = run_view(build_record(targets=(dataclasses.replace(BAD, leading=finding),))).targets
    assert target.path is not None
    assert ("falls from 1.5 to 2e-07" in description(target.path.svg)) is proven


def test_a_symptom_is_no_cause_and_a_verified_target_has_no_path():
    (target,) = run_view(build_record(targets=(dataclasses.replace(BAD, leading=DIFFERS),))).targets
    assert target.path is None
    warned = dataclasses.replace(GOOD, leading=CROSSED)
    assert run_view(build_record(targets=(warned,))).targets[0].path is None
    unbuilt = dataclasses.replace(BAD, leading=CROSSED, verifications=())
    assert run_view(build_record(targets=(unbuilt,))).targets[0].path is None


def test_a_case_that_did_not_run_is_a_symptom():
    verification = BAD.verifications[0]
    case = dataclasses.replace(verification.cases[1], outputs=(), error="refused", passed=False)
    broken = dataclasses.replace(verification, cases=(case,))
    target = dataclasses.replace(BAD, leading=CROSSED, verifications=(broken,))
    path = run_view(build_record(targets=(target,))).targets[0].path
    assert path is not None
    assert description(path.svg).endswith("Symptom Case typical does not run")


def test_findings_are_anchored_once_and_their_targets_point_there():
    view = run_view(build_record(targets=(GOOD, dataclasses.replace(BAD, leading=CROSSED))))
    assert len({each.anchor for each in view.findings}) == len(view.findings)
    bad, good = view.targets  # what failed comes first
    assert [each.located.finding.code for each in good.findings] == ["E102"]
    assert bad.leading is not None
    assert bad.leading.located.finding == CROSSED
    assert [each.leads for each in view.findings] == [True, False, False]


def test_anchors_are_unique_whatever_the_names():
    targets = named(GOOD, "a b", "a/b", "ort-cpu", "2")
    anchors = [each.anchor for each in run_view(build_record(targets=targets)).targets]
    assert anchors == ["target:1", "target:2", "target-ort-cpu", "target-2"]


def test_one_output_under_one_release_is_plotted_on_the_card_alone():
    one = dataclasses.replace(GOOD, verifications=GOOD.verifications[:1])
    assert run_view(build_record(targets=(one,))).targets[0].verifications[0].plots == ()
    both = run_view(verified_record()).targets[0].verifications
    assert [len(each.plots) for each in both] == [1, 1]

import dataclasses
import math
from typing import Any

import pytest
from records import contract, verified_record, verified_target
from small_recipe import recipe
from test_target_verdict import GOOD

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import Verification
from convkit.host.run.rejudging import rejudge_record
from convkit.host.verdict.target_verdict import judge
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    GreedyRow,
    Layout,
    ReferenceResult,
    SizeBranch,
    StepTrial,
    VerifyResult,
)

BAD = dataclasses.replace(GOOD, max_abs=0.5)
NAMES = ("smallest", "steps:prefill", "steps:1", "steps:2")
STEPS = {"feeds": {"y": "x"}, "axis": "sequence", "greedy": "y"}


def judged(
    bad: tuple[str, ...] = (),
    trials: tuple[StepTrial, ...] = (),
    greedy: tuple[GreedyRow, ...] = (),
    packaged: tuple[GreedyRow, ...] = (),
    tolerance: dict[str, float] | None = None,
    branches: tuple[SizeBranch, ...] = (),
) -> Verification:
    made = looped_recipe(tolerance)
    kinds = {name: "step" if name.startswith("steps") else "ladder" for name in NAMES}
    sizes = {"batch": 1, "sequence": 1}
    cases = tuple(CaseRecord(n, kinds[n], n, sizes, 0.1) for n in NAMES)  # type: ignore[arg-type]
    metrics = tuple(CaseMetrics(n, 0.1, (BAD if n in bad else GOOD,)) for n in NAMES)
    measured = VerifyResult(
        "device",
        contract(),
        ("CPU",),
        (),
        metrics,
        (),
        (),
        trials=trials,
        greedy=greedy,
        packaged=packaged,
    )
    reference = ReferenceResult(cases, (), Layout("batch"), branches)
    return judge(made, made.targets["ort"], reference, measured, stage="verify:ort", version=None)


def looped_recipe(tolerance: dict[str, float] | None = None) -> Recipe:
    values: dict[str, Any] = {"verify": {"tolerance": tolerance}} if tolerance else {}
    return recipe(
        inputs=[
            {
                "name": "ids",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": "token_ids",
            },
            {"name": "x", "dtype": "float32", "shape": ["batch", "sequence", 4]},
        ],
        axes={
            "batch": {"min": 1, "typical": 2, "max": 4},
            "sequence": {"min": 1, "typical": 8, "max": 16},
        },
        steps=STEPS,
        **values,
    )


def trial(kind: Any, *tensors: str, after: Any = GOOD, shift: int = 0) -> StepTrial:
    cases = tuple(CaseMetrics(name, 0.0, (after,)) for name in NAMES[1:])
    return StepTrial(kind, tensors, 1, cases, shift)


def codes(verification: Verification) -> list[str]:
    return [finding.code for finding in verification.findings]


def one(verification: Verification, code: str) -> Finding:
    (finding,) = [each for each in verification.findings if each.code == code]
    return finding


@pytest.mark.parametrize(
    ("found", "code", "text"),
    [
        (trial("layers", "a.0", "a.1"), "C502", "'a.0' and 'a.1' are swapped"),
        (trial("parts", "key", "value"), "C503", "fed in the opposite order, the error falls from"),
        (trial("positions", "ids", shift=-1), "C504", r"are off by +1 from call 2 on: with -1"),
        (trial("stale", "y"), "C505", "'y' is not updated"),
        (trial("updated", "y"), "C505", "'y' is wrong, and with it every later call"),
        (trial("reset", "x"), "C506", "the state ('x') has no effect from call 2 on"),
    ],
)
def test_a_correction_that_mends_every_call_is_the_cause(
    found: StepTrial, code: str, text: str
) -> None:
    verification = judged(bad=("steps:1", "steps:2"), trials=(found,))
    assert verification.status == "failed"
    assert verification.leading is not None
    assert verification.leading.code == code  # before the symptoms
    finding = one(verification, code)
    assert text in finding.message
    assert "0.5 to 1e-06" in finding.message
    assert finding.place.case == "steps:1"
    assert "N101" in codes(verification)


def test_a_correction_that_leaves_an_error_proves_nothing() -> None:
    left = trial("layers", "a", "b", after=dataclasses.replace(GOOD, max_abs=2e-4))
    not_a_number = trial("layers", "a", "b", after=dataclasses.replace(GOOD, max_abs=math.nan))
    empty = StepTrial("layers", ("a", "b"), 1, ())
    failed = StepTrial("layers", ("a", "b"), 1, (CaseMetrics("steps:1", 0.0, (), "refused"),))
    for each in (left, not_a_number, empty, failed):
        assert codes(judged(bad=("steps:1",), trials=(each,))) == ["N101"]


def test_a_correction_explains_failed_steps_only() -> None:
    fitting = trial("layers", "a", "b")
    assert codes(judged(trials=(fitting,))) == []
    assert codes(judged(bad=("smallest",), trials=(fitting,))) == ["N101"]


def row(margin: float | None, agreed: int = 3) -> GreedyRow:
    return GreedyRow(0, agreed, 8, 5, 6, margin)


def test_tokens_that_differ_at_a_tie_pass() -> None:
    assert codes(judged(greedy=(GreedyRow(0, 8, 8), row(1.9e-4)))) == []  # max_abs is 1e-4
    assert judged(greedy=(row(1.9e-4),)).greedy == (row(1.9e-4),)


@pytest.mark.parametrize("margin", [2.1e-4, math.nan])
def test_tokens_that_differ_by_more_fail(margin: float) -> None:
    verification = judged(greedy=(row(1e-5), row(margin, agreed=2)))
    assert verification.status == "failed"
    finding = one(verification, "N601")
    assert finding.place.case == "steps-greedy:2"
    assert "after 2 equal tokens of 8" in finding.message


@pytest.mark.parametrize("margin", [2.1e-4, math.nan, math.inf])
def test_a_package_s_tokens_are_judged_in_the_same_way(margin: float) -> None:
    assert codes(judged(packaged=(GreedyRow(0, 8, 8), row(1.9e-4)))) == []
    verification = judged(packaged=(row(1e-5), row(margin, agreed=2)))
    assert verification.status == "failed"
    assert "after 2 equal tokens of 8" in one(verification, "N621").message
    ended = GreedyRow(0, 3, 8, 5, None, math.inf)
    assert "continues row 0 with nothing" in one(judged(packaged=(ended,)), "N621").message


def test_without_an_absolute_limit_the_loop_s_own_error_says_what_a_tie_is() -> None:
    assert codes(judged(greedy=(row(1.9e-6),), tolerance={"cosine": 0.9})) == []  # max_abs 1e-6
    assert "N601" in codes(judged(greedy=(row(2.1e-6),), tolerance={"cosine": 0.9}))


def judged_again(verification: Verification) -> Verification:
    target = dataclasses.replace(verified_target(), name="ort", verifications=(verification,))
    stage = dataclasses.replace(verified_record().stages[-1], id="verify:ort", findings=())
    record = dataclasses.replace(verified_record(), targets=(target,), stages=(stage,))
    return rejudge_record(record, looped_recipe()).targets[0].verifications[0]


def test_tokens_that_differ_fail_again_when_a_stored_run_is_judged_again() -> None:
    again = judged_again(judged(greedy=(row(0.5),), packaged=(row(0.4),)))
    assert again.status == "failed"
    assert set(codes(again)) == {"N601", "N621"}
    assert again.packaged == (row(0.4),)
    assert again.greedy == (row(0.5),)


def test_a_loop_s_proven_cause_leads_again_when_a_stored_run_is_judged_again() -> None:
    verification = judged(NAMES[2:], (trial("stale", "y"),))
    again = judged_again(verification)
    assert again.headline == verification.headline
    assert codes(again) == codes(verification)
    assert codes(again)[0] != "N101"
    lost = judged_again(dataclasses.replace(verification, trials=()))
    assert codes(lost) == ["N101"]


def test_what_depends_on_sizes_and_rows_is_judged_again_as_before() -> None:
    outcomes = {name: name in NAMES[2:] for name in NAMES}
    verification = judged(NAMES[2:], branches=(SizeBranch("model.py:3", outcomes),))
    assert codes(verification)[:2] == ["N101", "E302"]  # which cases fail is no proof
    again = judged_again(verification)
    assert (again.branches, again.rows) == (verification.branches, "batch")
    assert codes(again) == codes(verification)

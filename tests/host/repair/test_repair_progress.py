"""When a change to a recipe counts as progress, and when it counts as harm."""

import math
from typing import Any

import pytest
from records import build_record, tensor_metrics

from convkit.host.record.run_record import (
    CaseVerdict,
    OutputVerdict,
    RunRecord,
    TargetReport,
    Verification,
)
from convkit.host.repair.repair_progress import improves, worsened
from convkit.protocol.metrics.limits import problems

LIMITS = {"max_abs": 0.1}


def output(error: float, name: str = "y") -> OutputVerdict:
    found = tensor_metrics(error, output=name)
    wrong = problems(found, LIMITS)
    return OutputVerdict(name, not wrong, tuple(p.message for p in wrong), LIMITS, found, wrong)


def case(name: str, *errors: float, refused: str | None = None) -> CaseVerdict:
    outputs = tuple(output(error, f"y{index}") for index, error in enumerate(errors))
    passed = refused is None and all(each.passed for each in outputs)
    return CaseVerdict(name, "", {}, passed, 0.0, outputs, refused)


def target(*cases: CaseVerdict, status: Any = "failed", name: str = "ort") -> TargetReport:
    verification = Verification(f"verify:{name}", None, status, "device", "", cases)
    return TargetReport(name, "onnxruntime", "cpu", "float32", status, "", (verification,))


def ran(*targets: TargetReport) -> RunRecord:
    return build_record(targets=targets)


UNJUDGED = target()
BROKEN = target(status="broken")
BAD = target(case("small", 1.0), case("large", 1.0))


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        (UNJUDGED, target(case("small", 0.0), status="verified"), True),
        (UNJUDGED, BROKEN, False),
        (BROKEN, UNJUDGED, False),
        (UNJUDGED, BAD, False),  # one finding gave way to another one
        (UNJUDGED, target(case("small", 0.0), case("large", 1.0)), True),
        (BAD, target(case("small", 0.0), case("large", 1.0)), True),
        (BAD, target(case("small", 0.5), case("large", 0.5)), True),
        (BAD, target(case("small", 1.0), case("large", 1.0)), False),
        (BAD, target(case("small", 2.0), case("large", 0.5)), False),
        (BAD, target(case("small", math.nan), case("large", 1.0)), False),
        (target(case("small", math.nan)), target(case("small", 1.0)), True),
        (BAD, target(case("small", refused="no"), case("large", 1.0)), False),
        (BAD, UNJUDGED, False),
        (target(case("a", 1.0, 1.0)), target(case("a", 1.0, 0.0)), True),
    ],
)
def test_what_the_verdict_measures_decides(
    before: TargetReport, after: TargetReport, better: bool
) -> None:
    assert improves(ran(before), ran(after)) is better


def test_one_target_may_not_pay_for_another() -> None:
    good, bad = target(case("small", 0.5), name="a"), target(case("small", 5.0), name="a")
    before = ran(target(case("small", 1.0), name="a"), BAD)
    fixed = target(case("small", 0.0), case("large", 0.0), status="verified")
    assert improves(before, ran(good, fixed))
    assert not improves(before, ran(bad, fixed))
    verified = target(case("small", 0.0), name="a", status="verified")
    assert not improves(ran(verified, BAD), ran(good, fixed))
    assert worsened(ran(verified), ran(good)) == ["a was verified and is failed"]

"""An audit accepts limits that the verdict set in place of the recipe's, and no others."""

import dataclasses
from pathlib import Path

from records import LIMITS, OUTPUT, RECIPE_TEXT, case_verdict, output_verdict, verified_record

from convkit.host.audit.checks.judged_again import judge_again
from convkit.host.record.run_record import RunRecord
from convkit.protocol.messages import RoundedOutput

# What float16 allows without a tolerance, and what twice a rounding of 0.02 makes of it.
WIDENED = {"nrmse": 0.04}


def recorded(case: str, limits: dict[str, float], *, text: str, **changes: object) -> RunRecord:
    """Return a run of a float16 target whose first verification has only a case, with limits."""
    record = verified_record()
    target = dataclasses.replace(record.targets[0], precision="float16")
    judged = dataclasses.replace(output_verdict(1e-5), limits=limits)
    first = dataclasses.replace(
        target.verifications[0], cases=(case_verdict(case, 4, 128, judged),), **changes
    )
    target = dataclasses.replace(target, verifications=(first,))
    text = text.replace("ort-cpu: {", "ort-cpu: {precision: float16, ")
    return dataclasses.replace(record, targets=(target,), recipe_text=text)


def complaints(record: RunRecord) -> list[str]:
    found = judge_again(Path("run"), record, same_code=True).contradictions
    return [each.message for each in found if "judged by" in each.message]


def test_rows_that_are_equal_throughout_have_no_limit_in_low_precision() -> None:
    assert complaints(recorded("plain-rows:zeros", {}, text=RECIPE_TEXT)) == []
    assert complaints(recorded("typical", LIMITS, text=RECIPE_TEXT)) == []
    (complaint,) = complaints(recorded("typical", {}, text=RECIPE_TEXT))
    assert "typical" in complaint
    assert "judged by no limit" in complaint


def test_limits_that_rounding_widened_are_those_of_the_recorded_rounding() -> None:
    text = RECIPE_TEXT.replace("  tolerance: {max_abs: 1.0e-4, cosine: 0.99999}\n", "  seed: 0\n")
    assert text != RECIPE_TEXT
    metrics = dataclasses.replace(output_verdict(0.1).metrics, output=OUTPUT, nrmse=0.02)
    rounded = (RoundedOutput("float16", "typical", metrics),)
    assert complaints(recorded("typical", WIDENED, text=text, rounded=rounded)) == []
    (complaint,) = complaints(recorded("typical", WIDENED, text=text))
    assert "judged by nrmse 0.04" in complaint


def test_labels_may_have_been_judged_before_they_followed_scores() -> None:
    text = RECIPE_TEXT.replace("  tolerance: {max_abs: 1.0e-4, cosine: 0.99999}\n", "  seed: 0\n")
    text = text.replace("dtype: float32, shape: [batch, sequence, 384]", "dtype: int64, shape: [4]")
    for limits in ({"agreement": 1.0}, {"agreement": 1.0, "by_scores": 0.5}):
        assert complaints(recorded("typical", limits, text=text)) == []
    (complaint,) = complaints(recorded("typical", {"agreement": 1.0, "by_scores": 0.9}, text=text))
    assert "judged by agreement 1, by_scores 0.9" in complaint

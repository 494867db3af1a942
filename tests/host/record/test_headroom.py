import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import (
    ABSENT,
    build_record,
    case_verdict,
    failed_target,
    output_verdict,
    skipped_target,
    tensor_metrics,
    verified_record,
)

from convkit.host.record.display_text import bytes_text, seconds_text
from convkit.host.record.headroom import problems_of, worst_comparison, worst_of_output
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.record.run_summary import first_failing_case, left_out, located_findings, verdict
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import OmittedCase
from convkit.protocol.metrics.limits import LimitProblem
from convkit.protocol.metrics.metric_registry import limits_set


def test_the_worst_comparison_is_the_one_with_the_largest_share_of_its_limit():
    cases = [
        case_verdict("smallest", 1, 2, output_verdict(2e-5)),
        case_verdict("typical", 4, 128, output_verdict(7e-5)),
        case_verdict("padded", 4, 128, output_verdict(3e-5)),
    ]
    worst = worst_comparison(cases)
    assert (worst.case, worst.limit, worst.found, worst.passed) == (
        "typical",
        "max_abs",
        7e-5,
        True,
    )
    assert worst.share == pytest.approx(0.7)


def test_a_cosine_closer_to_its_limit_goes_before_a_small_absolute_error():
    worst = worst_of_output("typical", output_verdict(1e-9, cosine=0.999991))
    assert worst.limit == "cosine"
    assert worst.share == pytest.approx(0.9, rel=1e-3)
    assert str(worst) == "cosine 0.999991 >= 0.99999"


def test_a_failure_goes_before_every_pass_and_nan_before_figures():
    target = failed_target()
    worst = worst_comparison(target.verifications[0].cases)
    assert (worst.case, worst.passed, worst.share) == ("masked-row", False, math.inf)
    assert str(worst) == "384 NaN in the converted model, none in the original"


def share(limits, metrics):
    [limit] = limits_set(limits)
    return limit.share(metrics)


def test_nan_uses_the_whole_limit_and_more():
    metrics = tensor_metrics(math.nan, cosine=math.nan)
    assert share({"max_abs": 1e-4}, metrics) == math.inf
    assert share({"cosine": 0.9}, metrics) == math.inf


def test_a_limit_of_zero_is_met_by_zero_only():
    assert share({"max_abs": 0.0}, tensor_metrics(0.0)) == 0.0
    assert share({"max_abs": 0.0}, tensor_metrics(1e-30)) == math.inf


@given(
    st.floats(0, 1e3),
    st.floats(0, 10),
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=1, max_size=5),
)
def test_the_share_of_atol_and_rtol_agrees_with_the_excess(atol, rtol, frontier):
    metrics = dataclasses.replace(tensor_metrics(1.0), frontier=tuple(frontier))
    [limit] = limits_set({"atol": atol, "rtol": rtol})
    used, excess = limit.share(metrics), limit.found(metrics)
    if used <= 0.999:
        assert limit.holds(excess)
    if used >= 1.001:
        assert not limit.holds(excess) or excess == pytest.approx(atol, rel=1e-6, abs=1e-9)


def test_at_the_limit_the_broken_limit_is_the_worst():
    # Rounded to float64 both use exactly their limit, but only rms is within it.
    limits = {"rms": 0.5, "atol": 1e-4, "rtol": 0.01}
    metrics = dataclasses.replace(
        tensor_metrics(0.1), rms=0.5, frontier=((6.515929727227629, 0.06525929727227629),)
    )
    assert [limit.share(metrics) for limit in limits_set(limits)] == [1.0, 1.0]
    output = dataclasses.replace(output_verdict(0.1, "atol"), limits=limits, metrics=metrics)
    worst = worst_of_output("typical", output)
    assert worst.limit == "atol"
    assert not worst.found <= worst.allowed
    assert " > 0.0001 with rtol 0.01" in str(worst)


def test_what_a_record_of_an_older_release_holds_as_text_is_judged_again():
    output = output_verdict(0.31, "max_abs 0.31 > 0.0001", cosine=0.81)
    assert output.problems == ()
    found = problems_of(output)
    assert [(problem.limit, problem.found, problem.allowed) for problem in found] == [
        ("max_abs", 0.31, 1e-4),
        ("cosine", 0.81, 0.99999),
    ]
    newer = dataclasses.replace(output, problems=(LimitProblem("empty", "no elements to compare"),))
    assert problems_of(newer) == newer.problems
    assert problems_of(output_verdict(1e-9)) == ()


def as_older(value):
    """Return an encoded record without the fields that were added since."""
    if isinstance(value, dict):
        added = {"problems", "leading", "mismatch_kind"}
        added |= {"agreement", "reference_rms", "reference_max", "differing_max"}
        added |= {"change"} if "matches_base" in value else set()  # a remedy has always had one
        return {key: as_older(item) for key, item in value.items() if key not in added}
    return [as_older(item) for item in value] if isinstance(value, list) else value


def test_a_record_of_an_older_release_loads_and_shows_the_same():
    newer = build_record()
    assert as_older(encode(newer)) != encode(newer)
    older = decode(RunRecord, as_older(encode(newer)))
    assert as_older(encode(older)) == as_older(encode(newer))
    for record in (older, newer):
        worst = worst_comparison(record.targets[1].verifications[0].cases)
        assert str(worst) == "384 NaN in the converted model, none in the original"


def test_a_cosine_that_is_not_one_does_not_read_as_one():
    worst = worst_of_output("typical", output_verdict(0.0, cosine=0.9999998))
    assert str(worst) == "cosine 0.9999998 >= 0.99999"


def test_a_refusal_to_run_is_the_worst():
    cases = [case_verdict("smallest", 1, 2, error="\nInvalidArgument: bad shape\nmore")]
    worst = worst_comparison(cases)
    assert (worst.output, worst.passed) == (None, False)
    assert str(worst) == "the runtime failed: InvalidArgument: bad shape"


def test_no_cases_have_no_worst():
    assert worst_comparison([]) is None


def test_the_first_failing_case_is_the_simplest():
    assert first_failing_case(failed_target().verifications[0]).case == "typical"


def test_findings_are_told_once_errors_first_with_their_targets():
    located = located_findings(build_record())
    assert [(item.finding.code, item.where) for item in located] == [
        ("C110", ("ort-optimized",)),
        ("N101", ("ort-optimized",)),
        ("E102", ("ort-cpu",)),
    ]


def test_what_explains_a_failure_comes_before_what_it_explains():
    cause = Finding("C511", "'keys' and 'values' have each other's values")
    target = dataclasses.replace(failed_target(), findings=(cause,), leading=cause)
    codes = [item.finding.code for item in located_findings(build_record(targets=(target,)))]
    assert codes[0] == "C511"
    assert "N101" in codes[1:]


def test_what_is_left_out_is_told_once_with_its_reason():
    items = left_out(build_record())
    assert [item.what for item in items] == [
        "target ort-cuda",
        "case largest of ort-cpu (onnxruntime 1.21.0), ort-cpu (onnxruntime 1.31.0)",
    ]
    assert items[0].reason == ABSENT


def without(target: str, **reasons: str) -> TargetReport:
    """A verified target that left out cases, by case, for a reason."""
    verification = dataclasses.replace(
        verified_record().targets[0].verifications[0],
        version=None,
        omitted=tuple(OmittedCase(case, reason) for case, reason in reasons.items()),
    )
    return dataclasses.replace(
        verified_record().targets[0], name=target, verifications=(verification,)
    )


def test_cases_that_all_targets_left_out_for_one_reason_are_one_item():
    record = build_record(
        targets=(
            without("cpu", padded="no mask", ragged="no mask", largest="out of budget"),
            without("half", padded="no mask", ragged="no mask"),
        )
    )
    told = {item.reason: item.what for item in left_out(record) if item.what.startswith("case")}
    assert told == {"no mask": "cases padded, ragged", "out of budget": "case largest of cpu"}
    single = build_record(targets=(without("cpu", padded="no mask"),))
    assert "case padded" in {item.what for item in left_out(single)}


def test_a_stage_that_did_not_run_is_left_out_even_where_its_target_is_not_skipped():
    record = build_record(
        targets=(dataclasses.replace(skipped_target(), status="broken", verifications=()),)
    )
    assert [item.what for item in left_out(record)] == [
        "stage build:ort-cuda",
        "stage verify:ort-cuda",
    ]


def test_the_verdict_counts_every_target():
    assert verdict(build_record()) == "3 targets: 1 verified, 1 failed, 1 skipped"
    assert verdict(verified_record()) == "1 target: 1 verified"
    assert verdict(build_record(targets=())) == "0 targets: nothing was built"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (90_912_456, "86.7 MiB"),
        (3 * 2**40, "3072.0 GiB"),
    ],
)
def test_sizes(size, text):
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.004, "0.00 s"),
        (0.42, "0.42 s"),
        (8.06, "8.1 s"),
        (59.99, "1 min 00 s"),
        (185, "3 min 05 s"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds, text):
    assert seconds_text(seconds) == text


def test_what_padding_leaves_out_is_listed_with_how_far_it_differs():
    record = build_record()
    target = record.targets[0]
    verification = target.verifications[0]
    case = verification.cases[0]
    metrics = dataclasses.replace(
        case.outputs[0].metrics, padding_elements=12, padding_max_abs=3.25
    )
    output = dataclasses.replace(case.outputs[0], metrics=metrics)
    case = dataclasses.replace(case, outputs=(output,))
    verification = dataclasses.replace(verification, cases=(case,))
    target = dataclasses.replace(target, verifications=(verification,))
    listed = left_out(dataclasses.replace(record, targets=(target,)))
    found = [
        item
        for item in listed
        if item.what.startswith(f"padding of {metrics.output} in {target.name}")
    ]
    assert len(found) == 1
    assert "3.2" in found[0].reason
    assert not [item for item in left_out(record) if item.what.startswith("padding")]

import math

import pytest

from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import allclose_excess
from convkit.protocol.metrics.limits import breaches, is_within, overshoot, problems, smallest_alike
from convkit.protocol.metrics.metric_registry import limits_set


def metrics(**changes: object) -> TensorMetrics:
    values: dict[str, object] = {
        "output": "y",
        "elements": 4,
        "max_abs": 0.01,
        "max_rel": 0.1,
        "mean_abs": 0.005,
        "rms": 0.006,
        "cosine": 0.999,
        "worst_index": (0,),
        "worst_reference": 1.0,
        "worst_candidate": 1.01,
        "nan_reference": 0,
        "nan_candidate": 0,
        "inf_reference": 0,
        "inf_candidate": 0,
        "inf_mismatched": 0,
        "frontier": ((0.1, 0.01), (10.0, 0.5)),
    }
    return TensorMetrics(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_abs", "max_rel", "mean_abs", "rms"])
def test_each_limit_passes_at_its_value_and_fails_beyond_and_on_nan(name: str) -> None:
    value = getattr(metrics(), name)
    assert breaches(metrics(), {name: value}) == []
    assert [breach.limit for breach in breaches(metrics(), {name: value * 0.99})] == [name]
    assert [breach.limit for breach in breaches(metrics(**{name: math.nan}), {name: 1e9})] == [name]


def test_the_cosine_is_a_lower_limit_and_nan_fails_it() -> None:
    assert breaches(metrics(), {"cosine": 0.999}) == []
    assert breaches(metrics(), {"cosine": 0.9999})[0].message == "cosine 0.999 < 0.9999"
    assert breaches(metrics(cosine=math.nan), {"cosine": -0.99})


@pytest.mark.parametrize(
    ("cosine", "text"), [(1 - 2**-53, "1"), (0.9999998, "0.9999998"), (1 - 1e-11, "0.99999999999")]
)
def test_only_the_rounding_of_float64_reads_as_equal(cosine: float, text: str) -> None:
    (limit,) = limits_set({"cosine": 0.99999})
    assert limit.comparison(cosine, 0.99999, passed=True) == f"cosine {text} >= 0.99999"


def test_allclose_needs_both_parts_where_each_alone_is_not_enough() -> None:
    # (|reference|, |error|): 0.01 at 0.1 and 0.5 at 10
    assert breaches(metrics(), {"atol": 0.01, "rtol": 0.05}) == []
    assert breaches(metrics(), {"atol": 0.01, "rtol": 0.04})
    assert breaches(metrics(), {"atol": 0.001, "rtol": 0.05})
    assert breaches(metrics(), {"atol": 0.5}) == []
    assert breaches(metrics(), {"rtol": 0.2}) == []


def test_allclose_fails_where_nothing_is_known() -> None:
    assert math.isnan(allclose_excess(metrics(frontier=()), 0.0))
    assert breaches(metrics(frontier=()), {"atol": 1e9})


@pytest.mark.parametrize(
    ("limits", "factor"),
    [
        ({"max_abs": 0.02}, 0.5),
        ({"max_abs": 0.005}, 2.0),
        ({"max_abs": 0.02, "rms": 0.001}, 6.0),
        ({"cosine": 0.99975}, 2.0),  # twice the error is four times as far from 1
        ({"rtol": 0.01}, 10.0),
        ({"atol": 0.25, "rtol": 0.0}, 2.0),
        ({"max_abs": 0.0}, math.inf),
        ({}, 0.0),
    ],
)
def test_the_overshoot_says_by_what_factor_the_error_must_shrink(
    limits: dict[str, float], factor: float
) -> None:
    assert overshoot(metrics(), limits) == pytest.approx(factor)
    assert is_within(metrics(), limits) == (factor <= 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"nan_candidate": 1},
        {"inf_mismatched": 1},
        {"mismatch": "shape"},
        {"elements": 0},
        {"max_abs": math.nan},
        {"cosine": math.nan},
    ],
)
def test_what_is_not_comparable_is_not_within_any_limits(changes: dict[str, object]) -> None:
    assert not is_within(metrics(**changes), {"max_abs": 1e9, "cosine": -1.0})
    assert overshoot(metrics(**changes), {"max_abs": 1e9, "cosine": -1.0}) == math.inf


@pytest.mark.parametrize("kind", ["dtype", "shape"])
def test_what_was_not_compared_says_what_differs(kind: str) -> None:
    found = problems(metrics(mismatch="the text", mismatch_kind=kind), {"max_abs": 1e9})
    assert [(problem.kind, problem.message) for problem in found] == [(kind, "the text")]


@pytest.mark.parametrize(
    ("overshoots", "expected"),
    [
        ({"small": 1.9, "large": 2.0}, "small"),
        ({"small": 1.5, "large": 2.0}, "large"),
        ({"large": 2.0, "small": math.inf}, "small"),
        ({"large": math.inf, "small": 99.0}, "large"),
        ({"large": math.inf, "small": math.inf}, "small"),
        ({}, None),
    ],
)
def test_the_smallest_case_about_as_far_off_as_the_worst_is_looked_at(
    overshoots: dict[str, float], expected: str | None
) -> None:
    assert smallest_alike(overshoots, {"small": 8, "large": 800}) == expected

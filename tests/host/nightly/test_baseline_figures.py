"""Figures against the baseline and against their history."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.nightly.figure_limits import (
    ALLOWANCE,
    HISTORY_ALLOWANCE,
    change_text,
    history_faults,
    is_better,
    is_worse,
)

STEADY = {"ort/max_abs_err": [1e-6, 1.1e-6, 0.9e-6, 1e-6], "ort/size_bytes": [1000.0] * 4}


@pytest.mark.parametrize(
    ("metric", "before", "now", "worse", "better"),
    [
        ("size_bytes", 1e6, 1_000_999, False, False),
        ("size_bytes", 1e6, 1_001_500, True, False),
        ("size_bytes", 1e6, 9e5, False, True),
        ("max_abs", 1e-5, 1.2e-5, False, False),
        ("max_abs", 1e-5, 1.21e-5, True, False),
        ("max_abs", 0.0, 0.0, False, False),
        ("max_abs", 0.0, 1e-30, True, False),
        ("rms", 1e-5, 1e-6, False, True),
        ("cosine", 1.0, 1.0 - 1e-12, False, False),
        ("cosine", 1.0 - 1e-6, 1.0 - 1.4e-6, True, False),
        ("cosine", 1.0 - 1e-6, 1.0 - 1e-7, False, True),
    ],
)
def test_a_figure_is_worse_beyond_its_allowance(
    metric: str, before: float, now: float, worse: bool, better: bool
) -> None:
    assert is_worse(metric, before, now) == worse
    assert is_better(metric, before, now) == better


@pytest.mark.parametrize("metric", sorted(ALLOWANCE))
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_good(metric: str, value: float) -> None:
    good = value == (math.inf if metric == "cosine" else -math.inf)
    assert is_worse(metric, 0.5, value) == (not good)
    assert not is_better(metric, 0.5, value)


@pytest.mark.parametrize(
    ("metric", "before", "now", "text"),
    [
        ("size_bytes", 1_000_000, 1_050_000, "size_bytes 1000000 -> 1050000 (+5 %)"),
        ("max_abs", 1e-5, 1.0004e-5, "max_abs 1e-05 -> 1.0004e-05 (+0.04 %)"),
        ("max_abs", 1e-5, 1.0, "max_abs 1e-05 -> 1 (100000 times)"),
        ("max_abs", 0.0, 1e-9, "max_abs 0 -> 1e-09"),
        ("rms", 1e-5, math.nan, "rms 1e-05 -> nan"),
        ("cosine", 0.999999, 0.999998, "cosine 0.999999 -> 0.999998"),
    ],
)
def test_a_change_shows_both_values_in_enough_digits(
    metric: str, before: float, now: float, text: str
) -> None:
    assert change_text(metric, before, now) == text


def test_steady_figures_are_no_fault() -> None:
    assert history_faults({"ort/max_abs_err": 1.1e-6, "ort/size_bytes": 1000.0}, STEADY) == ()


def test_a_figure_that_grew_is_named_with_its_history() -> None:
    (fault,) = history_faults({"ort/max_abs_err": 9e-6, "ort/size_bytes": 1000.0}, STEADY)
    assert (fault.kind, fault.target) == ("figure", "ort")
    assert fault.message == (
        "ort max_abs_err 1e-06 -> 9e-06 (+800 %) against the median of 4 earlier nightly runs"
    )


@pytest.mark.parametrize(("size", "worse"), [(1000.9, False), (1002.0, True), (10.0, False)])
def test_sizes_may_grow_by_a_thousandth(size: float, worse: bool) -> None:
    assert bool(history_faults({"ort/size_bytes": size}, STEADY)) == worse


def test_a_single_outlier_in_the_history_moves_no_bound() -> None:
    history = {"ort/max_abs_err": [1e-6, 1e-6, 1e-6, 1e-6, 1e-2]}
    assert history_faults({"ort/max_abs_err": 1e-3}, history)


def test_a_history_that_varies_allows_what_it_varies_by() -> None:
    history = {"ort/single_call_seconds": [0.1, 0.2, 0.4, 0.1, 0.3]}
    assert history_faults({"ort/single_call_seconds": 0.8}, history) == ()
    assert history_faults({"ort/single_call_seconds": 3.0}, history)


def test_two_runs_are_no_history() -> None:
    assert history_faults({"ort/size_bytes": 9e9}, {"ort/size_bytes": [1.0, 1.0]}) == ()


def test_nan_is_beyond_every_bound() -> None:
    assert history_faults({"ort/max_abs_err": math.nan}, STEADY)


@given(
    st.lists(st.floats(1e-9, 1e9), min_size=3, max_size=30),
    st.sampled_from(sorted(HISTORY_ALLOWANCE)),
)
def test_the_median_itself_is_never_worse(values: list[float], metric: str) -> None:
    lower_median = sorted(values)[(len(values) - 1) // 2]
    assert history_faults({f"a/{metric}": lower_median}, {f"a/{metric}": values}) == ()

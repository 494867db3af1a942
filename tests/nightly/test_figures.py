"""Figures against their history."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.nightly.drift import ALLOWANCE, find_drifts

STEADY = {"ort/max_abs_err": [1e-6, 1.1e-6, 0.9e-6, 1e-6], "ort/size_bytes": [1000.0] * 4}


def test_figures_as_they_were_drift_nowhere() -> None:
    assert find_drifts({"ort/max_abs_err": 1.2e-6, "ort/size_bytes": 1000.0}, STEADY) == ()


def test_one_that_grew_is_told_with_its_history() -> None:
    (drift,) = find_drifts({"ort/max_abs_err": 9e-6, "ort/size_bytes": 1000.0}, STEADY)
    assert (drift.target, drift.metric, drift.count) == ("ort", "max_abs_err", 4)
    assert str(drift) == "ort max_abs_err: 9e-06, median of 4 runs 1e-06"


@pytest.mark.parametrize(("size", "drifts"), [(1019.0, False), (1021.0, True), (10.0, False)])
def test_sizes_may_grow_by_a_fiftieth(size: float, drifts: bool) -> None:
    assert bool(find_drifts({"ort/size_bytes": size}, STEADY)) == drifts


def test_a_single_outlier_in_the_history_moves_no_bound() -> None:
    history = {"ort/max_abs_err": [1e-6, 1e-6, 1e-6, 1e-6, 1e-2]}
    assert find_drifts({"ort/max_abs_err": 1e-3}, history)


def test_a_history_that_varies_allows_what_it_varies_by() -> None:
    history = {"ort/typical_seconds": [0.1, 0.2, 0.4, 0.1, 0.3]}
    assert find_drifts({"ort/typical_seconds": 0.8}, history) == ()
    assert find_drifts({"ort/typical_seconds": 3.0}, history)


def test_two_nights_are_no_history() -> None:
    assert find_drifts({"ort/size_bytes": 9e9}, {"ort/size_bytes": [1.0, 1.0]}) == ()


def test_nan_is_beyond_every_bound() -> None:
    assert find_drifts({"ort/max_abs_err": math.nan}, STEADY)


@given(st.lists(st.floats(1e-9, 1e9), min_size=3, max_size=30), st.sampled_from(sorted(ALLOWANCE)))
def test_the_median_itself_never_drifts(values: list[float], metric: str) -> None:
    middle = sorted(values)[len(values) // 2]
    assert (
        find_drifts(
            {f"a/{metric}": min(middle, sorted(values)[(len(values) - 1) // 2])},
            {f"a/{metric}": values},
        )
        == ()
    )

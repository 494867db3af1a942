import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.report.svg_plots import LogScale, log_scale


def test_whole_decades_around_the_values():
    scale = log_scale([0.02, 3.0], bottom=100, top=0)
    assert (scale.low, scale.high) == (-2, 1)
    assert scale.position(0.01) == 100
    assert scale.position(10) == 0
    assert scale.position(1) == pytest.approx(100 / 3)


def test_what_has_no_logarithm_does_not_stretch_the_scale():
    scale = log_scale([0.0, -1.0, math.nan, math.inf, 1.0], bottom=10, top=0)
    assert (scale.low, scale.high) == (0, 1)


@pytest.mark.parametrize("value", [0.0, -0.5, math.nan, math.inf])
def test_and_has_no_position(value):
    with pytest.raises(ValueError, match="no place"):
        LogScale(-1, 1, 10, 0).position(value)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (-1, 0, (-1, 0)),
        (-2, 2, (-2, -1, 0, 1, 2)),
        (-4, 2, (-4, -2, 0, 2)),
        (0, 38, (0, 8, 16, 24, 32)),
        (-12, -3, (-12, -10, -8, -6, -4)),
        (3, 4, (3, 4)),
    ],
)
def test_ticks_are_few_even_and_include_one(low, high, ticks):
    assert LogScale(low, high, 0, 1).ticks() == ticks


@given(
    st.lists(st.floats(min_value=5e-324, max_value=1.7e308), min_size=1, max_size=8),
    st.integers(min_value=2, max_value=9),
)
def test_every_value_is_on_the_scale_in_its_order(values, most):
    scale = log_scale(values, bottom=100, top=0)
    positions = [scale.position(value) for value in sorted(values)]
    assert positions == sorted(positions, reverse=True)
    assert all(-1e-6 <= position <= 100 + 1e-6 for position in positions)
    ticks = scale.ticks(most)
    assert 1 <= len(ticks) <= most
    assert scale.low <= ticks[0]
    assert ticks[-1] <= scale.high
    assert not scale.low <= 0 <= scale.high or 0 in ticks

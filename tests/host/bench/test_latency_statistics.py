import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.record.bench_record import Interval
from convkit.host.record.latency_statistics import (
    Rounds,
    interval,
    merged,
    noise,
    noise_text,
    percentile,
    size_figures,
    waiting,
    waiting_text,
)

FINITE = st.floats(1e-6, 1e3, allow_nan=False)


@given(st.lists(FINITE, min_size=1, max_size=40), st.floats(0, 1))
def test_percentiles_are_numpys(values, share):
    assert percentile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-9)


def rounds(*medians: float, calls: int = 10) -> Rounds:
    return Rounds(tuple((median,) * calls for median in medians))


def test_an_interval_holds_its_figure_and_widens_with_the_noise():
    quiet = [1.0, 1.01, 0.99, 1.0, 1.0, 1.01]
    loud = [1.0, 2.0, 0.5, 1.0, 3.0, 1.0]
    found = {
        name: interval([range(6)], lambda drawn, of=values: sum(of[i] for i in drawn) / 6)
        for name, values in (("quiet", quiet), ("loud", loud))
    }
    for each in found.values():
        assert each.low <= each.value <= each.high
    width = {name: each.high - each.low for name, each in found.items()}
    assert 0 < width["quiet"] < width["loud"] / 10


def test_a_ratio_of_the_same_rounds_does_not_see_the_machines_mood():
    """Every round is twice as slow as the one before, and the target always takes half."""
    original = rounds(1.0, 2.0, 4.0, 8.0, 16.0)
    target = rounds(0.5, 1.0, 2.0, 4.0, 8.0)
    found = size_figures("typical", {"batch": 3}, target, original, rows=3)
    assert found.ratios["p50"].value == 0.5
    assert found.ratios["p50"] == Interval(0.5, 0.5, 0.5)
    assert found.throughput == pytest.approx(3 / found.p50.value)
    assert noise(original) > 1


def test_a_percentile_needs_calls_beyond_it():
    few = size_figures("typical", {}, rounds(1.0, 1.0), None, rows=1)
    assert (few.p50 is not None, few.p90 is not None, few.p99) == (True, True, None)
    assert size_figures("typical", {}, rounds(1.0, calls=2), None, rows=1).p90 is None
    many = size_figures("typical", {}, rounds(1.0, 1.0, calls=100), None, rows=1)
    assert many.p99 is not None
    assert many.ratios == {}


def test_an_interval_includes_what_changes_between_processes():
    """Each process is steady, and they differ: a model with one process looks steadier than it
    is.
    """
    speeds = (0.062, 0.079, 0.062)
    single = [rounds(*[speed] * 5) for speed in speeds]
    sessions = [{"typical": {"original": rounds(*[0.1] * 5), "ort": each}} for each in single]
    together = merged(sessions)["typical"]
    ratio = size_figures("typical", {}, together["ort"], together["original"], rows=1).ratios["p50"]
    alone = size_figures("typical", {}, single[0], rounds(*[0.1] * 5), rows=1).ratios["p50"]
    assert (alone.low, alone.high) == pytest.approx((0.62, 0.62))
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.62, 0.62, 0.79))


def test_rounds_of_sessions_stay_side_by_side():
    """The second session is twice as slow for every model: the ratio does not notice."""
    sessions = [
        {"typical": {"original": rounds(*[speed] * 3), "ort": rounds(*[speed / 2] * 3)}}
        for speed in (1.0, 2.0)
    ]
    together = merged(sessions)["typical"]
    assert together["ort"].processes == (3, 3)
    found = size_figures("typical", {}, together["ort"], together["original"], rows=1)
    assert found.ratios["p50"] == Interval(0.5, 0.5, 0.5)


def test_a_model_that_fails_in_one_session_has_no_timings():
    fine, failed = rounds(1.0), "out of memory"
    sessions = [
        {"typical": {"original": fine, "ort": fine, "gone": fine}},
        {"typical": {"original": fine, "ort": failed}},
    ]
    together = merged(sessions)["typical"]
    assert together["ort"] == failed
    assert together.keys() == {"original", "ort"}
    assert together["original"].seconds == fine.seconds * 2


def test_noise_is_said_in_words():
    assert noise_text(noise(rounds(1.0, 1.0, 1.0))) == "steady: 0 %"
    assert noise_text(0.12) == "unsteady: 12 %"
    assert noise_text(142.2) == "unsteady: over 100 %"
    assert noise_text(float("nan")).startswith("unsteady")


def test_the_model_that_waited_longest_says_how_busy_the_machine_was():
    calm = Rounds(((1.0,), (1.0,), (1.0,)), (0.0, 0.9, 0.01))  # a single busy round
    assert waiting([calm]) == 0.01
    assert waiting([calm, Rounds(((1.0,),) * 3, (0.4, 0.3, 0.5))]) == 0.4
    assert waiting([Rounds(((1.0,),))]) == 0.0  # a system that does not count it


def test_a_busy_machine_is_a_warning():
    assert waiting_text(0.1) is None
    assert "40 % of the time" in waiting_text(0.4)

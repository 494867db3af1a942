"""What is worth having: domination, ties, and the choice."""

import dataclasses

import pytest

from convkit.host.record.bench_record import Interval
from convkit.host.record.tune_record import Candidate, Figures
from convkit.host.tune.pareto_frontier import choose, frontier


def candidate(name: str, latency: float, size: int = 100, error: float = 1e-6, **more) -> Candidate:
    spread = more.pop("spread", 0.02)
    interval = Interval(latency, latency * (1 - spread), latency * (1 + spread))
    figures = Figures(latency=interval, p50=interval, size_bytes=size, error=error, **more)
    return Candidate(name, {"runtime": "onnxruntime"}, "frontier", figures=figures)


def test_a_trade_is_kept_and_what_is_worse_in_every_respect_is_not():
    small = candidate("small", 0.8, size=25, error=1e-2)
    exact = candidate("exact", 0.6)
    slow = candidate("slow", 0.9)
    assert frontier([small, exact, slow]) == {"slow": "exact"}


def test_latencies_within_the_noise_decide_nothing():
    steady = [candidate("a", 0.60), candidate("b", 0.70, size=90)]
    assert frontier(steady) == {}
    noisy = [candidate("a", 0.60, spread=0.1), candidate("b", 0.65, size=90, spread=0.1)]
    assert frontier(noisy) == {"a": "b"}


def test_of_equals_the_first_stays():
    assert frontier([candidate("own", 0.60), candidate("other", 0.61)]) == {"other": "own"}


def test_a_drop_of_the_score_counts():
    assert frontier([candidate("good", 0.9, drop=0.0), candidate("bad", 0.5, drop=0.1)]) == {}
    assert frontier([candidate("good", 0.5, drop=0.0), candidate("bad", 0.9, drop=0.1)]) == {
        "bad": "good"
    }


def test_the_better_one_that_is_named_is_on_the_frontier():
    chain = [candidate("worst", 0.9), candidate("middle", 0.7), candidate("best", 0.5)]
    assert frontier(chain) == {"worst": "best", "middle": "best"}


def test_an_error_that_is_not_a_number_is_the_worst():
    nan = candidate("nan", 0.5, error=float("nan"))
    assert frontier([nan, candidate("fine", 0.5)]) == {"nan": "fine"}


@pytest.mark.parametrize(
    ("prefer", "best"), [("speed", "fast"), ("size", "small"), ("accuracy", "exact")]
)
def test_what_is_preferred_decides(prefer, best):
    found = [
        candidate("fast", 0.3, size=50, error=1e-3),
        candidate("small", 0.6, size=25, error=1e-2),
        candidate("exact", 0.7, size=100, error=1e-7),
    ]
    assert choose(found, prefer).name == best


def test_among_equally_fast_ones_the_smallest_is_chosen():
    found = [candidate("large", 0.30, spread=0.1), candidate("small", 0.31, size=25, spread=0.1)]
    assert choose(found, "speed").name == "small"


def test_nothing_timed_is_no_choice():
    untimed = dataclasses.replace(candidate("a", 0.5), figures=Figures(size_bytes=10))
    assert choose([untimed], "speed") is None
    assert choose([], "size") is None

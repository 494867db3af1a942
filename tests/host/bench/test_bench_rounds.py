"""The rounds of a benchmark, with members that only count: test_bench_command.py has a real one."""

from typing import cast

import pytest

from convkit.host.bench.bench_rounds import measure, processes_for, processes_left
from convkit.host.bench.bench_session import TimedModel
from convkit.protocol.messages import BenchSize, Timing


class _CountingMember:
    """Answers orders as a worker whose calls take `seconds` each."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self.orders: list[int] = []

    def time(self, size: str, calls: int) -> Timing:
        self.orders.append(calls)
        return Timing((self.seconds,) * calls, waited=0.0)


def _silent(_line: str, _share: float | None) -> None:
    pass


def _turns(seconds: float) -> set[int]:
    member = _CountingMember("model", seconds)
    size = BenchSize("typical", {})
    timed = measure([cast("TimedModel", member)], [size], 5.0, _silent)
    assert timed["typical"].keys() == {"model"}
    return set(member.orders[2:])  # the first orders warm up


@pytest.mark.parametrize("seconds", [0.99, 0.15, 0.07])
def test_a_call_under_a_second_is_never_a_turn_by_itself(seconds: float) -> None:
    # From two calls on, the worker makes one before them that does not count.
    assert min(_turns(seconds)) >= 2


def test_a_long_call_is_a_turn_by_itself() -> None:
    assert _turns(1.5) == {1}


def test_a_long_call_warms_up_once() -> None:
    """At the largest size, calls take seconds, and every process warms up again."""
    calls = {}
    for seconds in (0.9, 1.5):
        member = _CountingMember("model", seconds)
        measure([cast("TimedModel", member)], [BenchSize("largest", {})], 1.0, _silent, processes=3)
        calls[seconds] = member.orders
    assert calls[0.9][:2] == [1, 2]
    assert calls[1.5] == [1, 1, 1]  # two of the six rounds


def test_short_calls_fill_a_turn() -> None:
    assert _turns(0.01) == {20}


def test_very_short_calls_are_limited() -> None:
    assert _turns(1e-5) == {50}


@pytest.mark.parametrize(
    ("loading", "measuring", "processes"),
    [(4.0, 40.0, 3), (30.0, 40.0, 2), (60.0, 40.0, 1), (0.0, 0.0, 3), (float("inf"), 40.0, 1)],
)
def test_loading_again_never_takes_longer_than_measuring(
    loading: float, measuring: float, processes: int
) -> None:
    assert processes_for(loading, measuring) == processes
    assert (processes - 1) * loading <= measuring or processes == 1


@pytest.mark.parametrize(
    ("planned", "first", "left"),
    [(3, 15.0, 3), (3, 50.0, 2), (3, 500.0, 2), (2, 500.0, 2), (1, 500.0, 1), (3, 0.0, 3)],
)
def test_slow_models_get_fewer_processes(planned: int, first: float, left: int) -> None:
    assert processes_left(planned, first, 40.0) == left


def test_processes_share_the_rounds() -> None:
    size = BenchSize("typical", {})
    counts = []
    for processes in (1, 3):
        member = _CountingMember("model", 1e-5)
        timed = measure([cast("TimedModel", member)], [size], 5.0, _silent, processes)["typical"]
        counts.append(len(timed["model"].seconds))  # type: ignore[union-attr]
    assert counts == [40, 14]

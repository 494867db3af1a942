"""The rounds of a benchmark, with members that only count: a real one is in test_bench.py."""

from typing import cast

import pytest

from convkit.execute.bench_rounds import measure
from convkit.execute.bench_session import Member
from convkit.worker.protocol import BenchSize, Timing


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
    timed = measure([cast("Member", member)], [size], 5.0, _silent)
    assert timed["typical"].keys() == {"model"}
    return set(member.orders[1:])  # the first order warms up


@pytest.mark.parametrize("seconds", [0.99, 0.15, 0.07])
def test_a_call_under_a_second_is_never_a_turn_by_itself(seconds: float) -> None:
    # From two calls on, the worker makes one before them that does not count.
    assert min(_turns(seconds)) >= 2


def test_a_long_call_is_a_turn_by_itself() -> None:
    assert _turns(1.5) == {1}


def test_short_calls_fill_a_turn() -> None:
    assert _turns(0.01) == {20}


def test_very_short_calls_are_limited() -> None:
    assert _turns(1e-5) == {50}

"""The rounds of a benchmark: in each, every model is called for a moment, so that a slow machine
affects all of them alike.
"""

import math
import time
from collections.abc import Callable, Sequence

from convkit.host.bench.bench_session import TimedModel
from convkit.host.record.display_text import remaining_text
from convkit.host.record.latency_statistics import Rounds, Timings
from convkit.protocol.messages import BenchSize, Timing

# A model's turn: long enough that the clock and the switch between processes do not matter.
_TURN_SECONDS = 0.2
# A call this long can be a turn by itself. A shorter one needs another before it that does not
# count: waking up beside the threads of the model before, which still spin, costs about 30 ms.
_LONG_CALL_SECONDS = 1.0
_MOST_CALLS = 50
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 40  # in all processes of a model together
_WARM_UP_CALLS = 2
_MOST_PROCESSES = 3


def processes_for(loading: float, measuring: float) -> int:
    """Return how many processes each model gets, one after another.

    Where a process's memory lies decides up to a quarter of a model's latency, and stays as it is
    for the process's life. Loading all models again must not take longer than measuring them does:
    `loading` is the seconds of the first time, `measuring` those of all timings.
    """
    return min(_MOST_PROCESSES, 1 + int(measuring / loading)) if loading > 0 else _MOST_PROCESSES


def processes_left(processes: int, first: float, measuring: float) -> int:
    """Return how many of `processes` each model gets in all, after the first of each took `first`
    seconds together: at least two, unless one was planned, and further ones only if they take no
    longer than twice the time that was asked for.
    """
    return min(processes, max(2, 1 + int(2 * measuring / first))) if first > 0 else processes


def measure(
    members: Sequence[TimedModel],
    sizes: Sequence[BenchSize],
    seconds: float,
    progress: Callable[[str, float | None], None],
    processes: int = 1,
) -> Timings:
    """Time every model for about `seconds` per size, in one of its `processes`; raises
    NotMeasuredError.
    """
    fewest = math.ceil(_FEWEST_ROUNDS / processes)
    most = math.ceil(_MOST_ROUNDS / processes)
    return {
        size.name: _measure_size(members, size.name, seconds, (fewest, most), progress)
        for size in sizes
    }


def _measure_size(
    members: Sequence[TimedModel],
    size: str,
    seconds: float,
    limits: tuple[int, int],
    progress: Callable[[str, float | None], None],
) -> dict[str, Rounds | str]:
    found: dict[str, Rounds | str] = {}
    calls: dict[str, int] = {}
    cost = 0.0
    for member in members:
        progress(f"warming up {member.name} at {size}", None)
        warm = member.time(size, 1)
        if warm.error is None and min(warm.seconds) < _LONG_CALL_SECONDS:
            warm = member.time(size, _WARM_UP_CALLS)
        if warm.error is not None:
            found[member.name] = warm.error
            continue
        once = min(warm.seconds)
        calls[member.name] = turn = _calls_per_turn(once)
        cost += (turn + 1 if turn > 1 else turn) * once  # a turn's first call does not count
    running = [member for member in members if member.name in calls]
    fewest, most = limits
    rounds = max(fewest, min(most, int(seconds / cost))) if cost else 0
    timed: dict[str, list[Timing]] = {member.name: [] for member in running}
    started = time.monotonic()
    for number in range(rounds):
        left = (time.monotonic() - started) / number * (rounds - number) if number else seconds
        progress(f"{size}: round {number + 1} of {rounds}, {remaining_text(left)}", number / rounds)
        shift = number % len(running)  # nobody always follows the same model
        for member in (*running[shift:], *running[:shift]):
            timed[member.name].append(member.time(size, calls[member.name]))
    return found | {name: _rounds(turns) for name, turns in timed.items()}


def _calls_per_turn(once: float) -> int:
    """Return how many calls of `once` seconds make a turn; from 2 on, the worker makes one more
    before them that does not count.
    """
    if once >= _LONG_CALL_SECONDS:
        return 1
    return max(2, min(_MOST_CALLS, round(_TURN_SECONDS / once)))


def _rounds(turns: Sequence[Timing]) -> Rounds:
    waited = tuple(turn.waited for turn in turns if turn.waited is not None)
    return Rounds(tuple(turn.seconds for turn in turns), waited)

"""The rounds of a benchmark: in each, every model is called for a moment, so that a slow machine
affects all of them alike.
"""

import time
from collections.abc import Callable, Sequence

from convkit.execute.bench_session import Member
from convkit.record.text import remaining_text
from convkit.verdict.bench_figures import Rounds, Timings
from convkit.worker.protocol import BenchSize, Timing

# A model's turn: long enough that the clock and the switch between processes do not matter.
_TURN_SECONDS = 0.2
# A call this long can be a turn by itself. A shorter one needs another before it that does not
# count: waking up beside the threads of the model before, which still spin, costs about 30 ms.
_LONG_CALL_SECONDS = 1.0
_MOST_CALLS = 50
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 40
_WARM_UP_CALLS = 2


def measure(
    members: Sequence[Member],
    sizes: Sequence[BenchSize],
    seconds: float,
    progress: Callable[[str, float | None], None],
) -> Timings:
    """Time every model for about `seconds` per size; raises NotMeasuredError."""
    return {size.name: _measure_size(members, size.name, seconds, progress) for size in sizes}


def _measure_size(
    members: Sequence[Member],
    size: str,
    seconds: float,
    progress: Callable[[str, float | None], None],
) -> dict[str, Rounds | str]:
    found: dict[str, Rounds | str] = {}
    calls: dict[str, int] = {}
    cost = 0.0
    for member in members:
        progress(f"warming up {member.name} at {size}", None)
        warm = member.time(size, _WARM_UP_CALLS)
        if warm.error is not None:
            found[member.name] = warm.error
            continue
        once = min(warm.seconds)
        calls[member.name] = turn = _calls_per_turn(once)
        cost += (turn + 1 if turn > 1 else turn) * once  # a turn's first call does not count
    running = [member for member in members if member.name in calls]
    rounds = max(_FEWEST_ROUNDS, min(_MOST_ROUNDS, int(seconds / cost))) if cost else 0
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

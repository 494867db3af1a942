"""From the timings of a benchmark's rounds to figures with confidence intervals. Pure.

Calls within a round share the machine's state, and rounds within a process the place of its memory,
so the bootstrap draws whole processes, then whole rounds of each (Kalibera and Jones, Rigorous
Benchmarking in Reasonable Time, 2013; Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 8). A ratio's two sides are drawn from the same rounds.
"""

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Sequence

from convkit.host.record.bench_record import Interval, SizeFigures

# Percentiles by name, with the calls that they need: ten calls beyond the percentile's share.
PERCENTILES: dict[str, tuple[float, int]] = {"p50": (0.5, 1), "p90": (0.9, 20), "p99": (0.99, 200)}
# Above this share, the original's median moved so much between rounds that figures are doubtful.
UNSTEADY = 0.05
# Above this share, threads waited so long for a processor that even ratios are doubtful.
_CROWDED = 0.1
_RESAMPLES = 400
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Rounds:
    """A model's timings at one size: the seconds of each call, by round, and the shares of the
    time that its threads waited for a processor in each round, if they are known. `processes` is
    the number of rounds in each of its processes, one after another; empty for a single process.
    """

    seconds: tuple[tuple[float, ...], ...]
    waited: tuple[float, ...] = ()
    processes: tuple[int, ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls in all rounds."""
        return sum(map(len, self.seconds))

    @property
    def by_process(self) -> list[range]:
        """The numbers of each process's rounds."""
        ends = list(itertools.accumulate(self.processes or (len(self.seconds),)))
        return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]


# By size and model: its timings, or why it does not run at that size.
Timings = dict[str, dict[str, Rounds | str]]


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, by linear interpolation between the two nearest values."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def interval(
    processes: Sequence[Sequence[int]], statistic: Callable[[Sequence[int]], float]
) -> Interval:
    """Return a statistic of all rounds, with its confidence interval. It is given the rounds'
    numbers, some of which repeat in a resample. `processes` are the numbers of each one's rounds.
    """
    draw = random.Random(0)  # noqa: S311 - a resample, which should repeat

    def resample() -> list[int]:
        drawn = draw.choices(processes, k=len(processes))
        return [number for rounds in drawn for number in draw.choices(rounds, k=len(rounds))]

    found = [statistic(resample()) for _ in range(_RESAMPLES)]
    tail = (1 - _CONFIDENCE) / 2
    return Interval(
        statistic([number for rounds in processes for number in rounds]),
        percentile(found, tail),
        percentile(found, 1 - tail),
    )


def merged(sessions: Sequence[Timings]) -> Timings:
    """Return the timings of a benchmark whose models had a process of their own in each session. A
    model that does not run at a size in one of them has no timings there, and none at all if it
    could not be loaded again.
    """
    loaded = [name for name in next(iter(sessions[0].values())) if _in_all(name, sessions)]
    return {
        size: {name: _merged([each[size][name] for each in sessions]) for name in loaded}
        for size in sessions[0]
    }


def _in_all(name: str, sessions: Sequence[Timings]) -> bool:
    return all(name in by_model for each in sessions for by_model in each.values())


def _merged(found: Sequence[Rounds | str]) -> Rounds | str:
    rounds = []
    for each in found:
        if isinstance(each, str):
            return each
        rounds.append(each)
    return Rounds(
        tuple(seconds for each in rounds for seconds in each.seconds),
        tuple(waited for each in rounds for waited in each.waited),
        tuple(len(each.seconds) for each in rounds),
    )


def size_figures(
    size: str, sizes: dict[str, int], measured: Rounds, original: Rounds | None, rows: int
) -> SizeFigures:
    """Return a model's figures at one size. `original` is None for the original itself, or if that
    was not measured; `rows` is the number of rows of the inputs.
    """
    processes = measured.by_process
    figures: dict[str, Interval] = {}
    ratios: dict[str, Interval] = {}
    for name, (share, needed) in PERCENTILES.items():
        if measured.calls < needed:
            continue
        figures[name] = interval(processes, lambda drawn, at=share: _pooled(measured, drawn, at))  # type: ignore[misc]
        if original is not None and original.calls >= needed:
            ratios[name] = interval(
                processes,
                lambda drawn, at=share: (  # type: ignore[misc]
                    _pooled(measured, drawn, at) / _pooled(original, drawn, at)
                ),
            )
    return SizeFigures(
        size,
        sizes,
        calls=measured.calls,
        throughput=rows / figures["p50"].value,
        ratios=ratios,
        p50=figures["p50"],
        p90=figures.get("p90"),
        p99=figures.get("p99"),
    )


def noise(original: Rounds) -> float:
    """Return how far the median moved between rounds, as a share of it: the range that holds the
    middle 80 % of the rounds' medians.
    """
    medians = [percentile(seconds, 0.5) for seconds in original.seconds]
    spread = percentile(medians, 0.9) - percentile(medians, 0.1)
    return spread / percentile(medians, 0.5)


def noise_text(share: float) -> str:
    """Return how steady the machine was: 'steady: 2 %', 'unsteady: 12 %'."""
    if share > 1:
        return "unsteady: over 100 %"
    return f"{'unsteady' if not share <= UNSTEADY else 'steady'}: {share * 100:.0f} %"


def waiting(models: Iterable[Rounds]) -> float:
    """Return the share of the time that threads waited for a processor in a typical round: that of
    the model which waited longest; 0 if it is unknown.
    """
    return max((percentile(each.waited, 0.5) for each in models if each.waited), default=0.0)


def waiting_text(share: float) -> str | None:
    """Return a warning that other programs needed the processors; None if they hardly did."""
    if not share > _CROWDED:
        return None
    return (
        f"Threads waited for a processor {share * 100:.0f} % of the time, so the ratios may be"
        " wrong. Close other programs, or measure with fewer threads (--threads 1)."
    )


def _pooled(measured: Rounds, drawn: Sequence[int], share: float) -> float:
    return percentile([each for number in drawn for each in measured.seconds[number]], share)

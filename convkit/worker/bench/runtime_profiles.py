"""Sums up a runtime's profile: where a call's time goes, by node and by operator."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping

from convkit.protocol.messages import OperatorCost, Profile
from convkit.worker.bench.built_node_modules import module_of

# Calls that are profiled: enough for a median, few enough for the largest models.
CALLS = 5
_MOST_EXPENSIVE = 10


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One run of a node: its operator, where it ran, and its duration in seconds."""

    node: str
    operator: str
    provider: str
    seconds: float


def profile_of(
    size: str,
    kernels: Iterable[Kernel],
    modules: Mapping[str, str],
    *,
    calls: int = CALLS,
    wanted: str | None = None,
) -> Profile:
    """Return the profile of `calls` calls. `wanted` is the provider that the target asks for."""
    runs: dict[tuple[str, str, str], list[float]] = {}
    for kernel in kernels:
        runs.setdefault((kernel.node, kernel.operator, kernel.provider), []).append(kernel.seconds)
    seconds = {key: _per_call(each, calls) for key, each in runs.items()}
    total = sum(seconds.values())
    kinds: dict[str, float] = {}
    for (_, operator, _), cost in seconds.items():
        kinds[operator] = kinds.get(operator, 0.0) + cost
    first = sorted(seconds.items(), key=lambda item: -item[1])[:_MOST_EXPENSIVE]
    operators = tuple(
        OperatorCost(
            node, operator, module_of(node, modules), provider, cost, cost / total if total else 0.0
        )
        for (node, operator, provider), cost in first
    )
    fallbacks = sum(wanted is not None and provider != wanted for _, _, provider in seconds)
    return Profile(size, operators, dict(sorted(kinds.items(), key=lambda i: -i[1])), fallbacks)


def _per_call(seconds: list[float], calls: int) -> float:
    """Return the median over the calls of a node's time in one, which a call that lost its
    processor to another program does not affect; the mean if calls run the node a different number
    of times.
    """
    runs, rest = divmod(len(seconds), calls)
    if rest:
        return sum(seconds) / calls
    return statistics.median(
        sum(seconds[start : start + runs]) for start in range(0, len(seconds), runs)
    )

"""Sums up a runtime's profile: where a call's time goes, by node and by operator."""

import dataclasses
from collections.abc import Iterable, Mapping

from convkit.bench.node_modules import module_of
from convkit.worker.protocol import OperatorCost, Profile

# Calls that are profiled: enough for a mean, few enough for the largest models.
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
    seconds: dict[tuple[str, str, str], float] = {}
    for kernel in kernels:
        key = (kernel.node, kernel.operator, kernel.provider)
        seconds[key] = seconds.get(key, 0.0) + kernel.seconds / calls
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

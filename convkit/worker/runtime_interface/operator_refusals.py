"""Findings about the operators of a graph that a runtime refuses, whichever runtime it is.

A runtime's own module asks the runtime, and knows what its messages mean.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.runtime_interface.distinct_operators import Operator, Operators

_MOST_NAMED = 5

Problem = TypeVar("Problem", bound=str)


@dataclasses.dataclass(frozen=True)
class Refusal(Generic[Problem]):
    """An operator that a runtime does not support; `message` is the runtime's."""

    operator: Operator
    problem: Problem
    message: str


def refusals(
    operators: Operators, ask: Callable[[str], tuple[Problem, str] | None]
) -> list[list[Refusal[Problem]]]:
    """Ask about every operator that has a probe; return the refused ones, one list per problem.

    `ask` returns a probe's problem and the runtime's message, or None.
    """
    found: dict[Problem, list[Refusal[Problem]]] = {}
    for operator in operators.operators:
        if operator.probe is not None and (answer := ask(operator.probe)) is not None:
            found.setdefault(answer[0], []).append(Refusal(operator, *answer))
    return list(found.values())


def refusal_finding(
    code: str, what: str, refused: Sequence[Refusal[Problem]], release: str, remedy: Remedy
) -> Finding:
    """Return the finding about operators that are refused for the same reason: `what` is that
    reason, to be followed by what it applies to.
    """
    first = refused[0].operator
    nodes = sum(refusal.operator.count for refusal in refused)
    kinds = list(
        dict.fromkeys(f"{refusal.operator.name} ({refusal.operator.types})" for refusal in refused)
    )
    shown = ", ".join(kinds[:_MOST_NAMED])
    if len(kinds) > _MOST_NAMED:
        shown += f" and {len(kinds) - _MOST_NAMED} more kinds"
    where = f"first at {first.node or 'an unnamed node'}"
    where += f" in {first.module}" if first.module else ""
    listed: list[Json] = [
        {
            "operator": refusal.operator.name,
            "types": refusal.operator.types,
            "nodes": refusal.operator.count,
            "first": refusal.operator.node,
            "module": refusal.operator.module,
            "message": refusal.message,
        }
        for refusal in refused
    ]
    return Finding(
        code,
        f"{what} {nodes} node{'s' if nodes > 1 else ''}: {shown}; {where}",
        Place(node=first.node or None, module=first.module or None, source=first.source or None),
        {"release": release, "operators": listed},
        remedy,
    )


def unchecked(operators: Operators) -> list[Finding]:
    """Return T104 if operators could not be asked about, because their types are unknown."""
    unknown = [each for each in operators.operators if each.unknown and "type" in each.unknown]
    if not unknown:
        return []
    first, nodes = unknown[0], sum(operator.count for operator in unknown)
    where = f"first at {first.node or first.name}"
    return [
        Finding(
            "T104",
            f"{nodes} nodes were not checked: {first.unknown} ({where})",
            Place(node=first.node or None, module=first.module or None),
            {"nodes": nodes},
            Remedy("Export with type information, or without operators from other domains."),
        )
    ]

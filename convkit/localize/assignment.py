"""Inputs and outputs that are exchanged: which assignment makes the outputs right."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from convkit.localize.diagnosis import Cause
from convkit.localize.graph import Graph, Values
from convkit.localize.matching import relative_error
from convkit.localize.original import Recording
from convkit.localize.parting import FLOOR

_SAME = 10 * FLOOR
# Inputs of one shape: of so many every order is tried, of more (the caches of a decoder's layers)
# every exchange of two.
_FEW = 3


def exchanged_inputs(
    feeds: Values, error: float, outputs_error: Callable[[Values], float]
) -> tuple[Cause, dict[str, str]] | None:
    """Return which inputs the graph takes for each other: for each, the one to feed instead.

    `outputs_error` runs the graph on other feeds. None where no assignment makes the outputs right.
    """
    for assignment in _assignments(feeds):
        fed = {name: feeds[assignment.get(name, name)] for name in feeds}
        after = outputs_error(fed)
        if after <= _SAME:
            names = " and ".join(assignment)
            cause = Cause(
                "inputs",
                f"the graph takes its inputs {names} for each other",
                tensor=next(iter(assignment)),
                before=error,
                after=after,
                boundary=None,
            )
            return cause, assignment
    return None


def _assignments(feeds: Values) -> Iterator[dict[str, str]]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, values in feeds.items():
        groups.setdefault((values.shape, values.dtype.str), []).append(name)
    for names in groups.values():
        if len(names) <= _FEW:
            for order in itertools.permutations(names):
                pairs = zip(names, order, strict=True)
                if moved := {name: other for name, other in pairs if name != other}:
                    yield moved
        else:
            for first, second in itertools.combinations(names, 2):
                yield {first: second, second: first}


def exchanged_outputs(recording: Recording, graph: Graph, feeds: Values) -> Cause | None:
    """Return the outputs that bear each other's names, if that is what is wrong with them."""
    found = graph.run(list(recording.outputs), feeds)
    expected = {name: recording.output(name) for name in recording.outputs}
    errors = _errors(found, expected)
    wrong = {
        name: next((o for o in expected if o != name and errors[name, o] <= _SAME), None)
        for name in expected
        if not errors[name, name] <= _SAME
    }
    if not wrong or None in wrong.values():
        return None
    text = ", ".join(f"{name} holds {other}" for name, other in wrong.items())
    before = max(errors[name, name] for name in wrong)
    return Cause(
        "outputs",
        f"outputs are exchanged: {text}",
        tensor=next(iter(wrong)),
        before=before,
        after=max(errors[name, other] for name, other in wrong.items() if other),
    )


def _errors(
    found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> dict[tuple[str, str], float]:
    return {
        (name, other): relative_error(found[name], expected[other]) if name in found else math.inf
        for name in expected
        for other in expected
    }

"""Inputs and outputs under each other's names: which assignment makes the outputs right."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.graphs.runnable_graph import Values
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import FLOOR
from convkit.worker.cause.search_types.search_results import Cause

_SAME = 10 * FLOOR
# Inputs of one shape: up to this number, every order is tried; of more (a decoder's caches), the
# orders that their names suggest and every swap of two.
_FEW = 4
_PAIRS = 200
_WORD = re.compile(r"\d+|[A-Za-z]+")


def exchanged_inputs(
    feeds: Values, error: float, outputs_error: Callable[[Values], float]
) -> tuple[Cause, dict[str, str]] | None:
    """Return which inputs the graph confuses: for each, the one to feed instead.

    `outputs_error` runs the graph on other feeds. None if no assignment makes the outputs correct.
    """
    for assignment in _assignments(feeds):
        fed = {name: feeds[assignment.get(name, name)] for name in feeds}
        if all(np.array_equal(fed[name], feeds[name]) for name in assignment):
            continue
        after = outputs_error(fed)
        if explains(error, after):
            cause = Cause(
                "inputs",
                _inputs_text(assignment),
                tensor=min(assignment, key=list(feeds).index),
                before=error,
                after=after,
                boundary=None,
            )
            return cause, assignment
    return None


def _inputs_text(assignment: Mapping[str, str]) -> str:
    """Describe which inputs are swapped; `assignment` maps each name to the input to feed
    instead.
    """
    pairs = [(a, b) for a, b in assignment.items() if assignment.get(b) == a and a < b]
    if 2 * len(pairs) == len(assignment):
        swapped = ", ".join(f"{a!r} and {b!r}" for a, b in pairs)
        return f"inputs are swapped in the graph: {swapped}"
    rotated = ", ".join(f"{name!r} is read as {other!r}" for name, other in assignment.items())
    return f"inputs are in a different order in the graph: {rotated}"


def _assignments(feeds: Values) -> Iterator[dict[str, str]]:
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, values in feeds.items():
        groups.setdefault((values.shape, values.dtype.str), []).append(name)
    for names in groups.values():
        yield from _orders(names)


def _orders(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield assignments of inputs to names: swaps of two first, then all orders of few names."""
    seen = set()
    several = itertools.combinations(names, 2)
    pairs = [{a: b, b: a} for a, b in itertools.islice(several, _PAIRS)]
    few = itertools.permutations(names) if len(names) <= _FEW else iter(())
    for moved in itertools.chain(
        pairs,
        by_words(names),
        _rotations(names),
        (dict(zip(names, order, strict=True)) for order in few),
    ):
        moved = {name: other for name, other in moved.items() if name != other}  # noqa: PLW2901
        key = tuple(sorted(moved.items()))
        if moved and key not in seen:
            seen.add(key)
            yield moved


def _rotations(names: Sequence[str]) -> Iterator[dict[str, str]]:
    for step in (1, -1):
        yield {name: names[(place + step) % len(names)] for place, name in enumerate(names)}
    yield dict(zip(names, reversed(names), strict=True))


def by_words(names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield assignments of names that differ in one word: all keys for values, layer 0 for layer 1.

    In `past_key_0`, `past_value_0`, `past_key_1`, ... the varying words are key and value, and the
    layers: any two of them are swapped in all names, and all of them rotated and reversed.
    """
    split = {tuple(_WORD.findall(name)): name for name in names}
    if len(split) != len(names) or len({len(words) for words in split}) != 1:
        return
    for place in range(len(next(iter(split)))):
        varying = sorted({words[place] for words in split}, key=lambda word: (len(word), word))
        if len(varying) < 2:
            continue
        changes = [{a: b, b: a} for a, b in itertools.combinations(varying[:_FEW], 2)]
        orders = ((*varying[1:], varying[0]), (varying[-1], *varying[:-1]), varying[::-1])
        changes += [dict(zip(varying, order, strict=True)) for order in orders]
        for change in changes:
            moved = {
                name: split.get((*words[:place], change.get(words[place], words[place]),
                                 *words[place + 1 :]))
                for words, name in split.items()
            }  # fmt: skip
            if None not in moved.values():
                yield {name: other for name, other in moved.items() if other is not None}


def exchanged_outputs(edge: GraphEdge) -> Cause | None:
    """Return the outputs that have each other's names, if that is the problem."""
    found = edge.outputs(edge.feeds)
    if found is None:
        return None
    expected = {name: edge.recording.output(name) for name in edge.recording.outputs}
    errors = _errors(found, expected)
    wrong = {
        name: next(
            (o for o in expected if o != name and explains(errors[name, name], errors[name, o])),
            None,
        )
        for name in expected
        if not errors[name, name] <= _SAME
    }
    if not wrong or None in wrong.values():
        return None
    text = ", ".join(f"{name!r} holds the values of {other!r}" for name, other in wrong.items())
    permuted = sorted(wrong) == sorted(str(other) for other in wrong.values())
    before = max(errors[name, name] for name in wrong)
    return Cause(
        "outputs",
        f"outputs are {'swapped' if permuted else 'duplicated'}: {text}",
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

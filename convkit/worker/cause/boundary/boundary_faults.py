"""Changes to inputs and outputs at a graph's boundary: swapped, flipped, scaled, shifted, ...

Searches over whole tensors: the graph with changed inputs, and its outputs with changes undone. A
change that makes all outputs match the original's is the cause.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np

from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.input_changes import INPUT_CHANGES
from convkit.worker.cause.boundary.name_assignment import exchanged_inputs, exchanged_outputs
from convkit.worker.cause.boundary.output_changes import FITTED, OUTPUT_CHANGES
from convkit.worker.cause.boundary.scale_and_offset import fitted_input
from convkit.worker.cause.boundary.tensor_changes import TensorChange, explains
from convkit.worker.cause.graphs.isolated_trials import Report, survived
from convkit.worker.cause.graphs.runnable_graph import Graph, Values
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import FLOOR
from convkit.worker.cause.search_types.search_results import Cause

_SAME = 10 * FLOOR
# These results of a search over places are more specific than a change of the whole tensor: they
# name the wrong number of a node.
_SAYS_MORE = ("weight", "exchanged", "checkpoint", "attribute", "operator", "constant")
_SECONDS = 20.0


def outputs_error(recording: Recording, graph: Graph, feeds: Values) -> float:
    """Return the largest error of the outputs, in parts of their rms; infinite if it cannot run."""
    return GraphEdge(recording, graph, feeds).error(feeds)


def exchanged(edge: GraphEdge, error: float) -> Cause | None:
    """Return inputs or outputs that are swapped, if that explains everything."""
    found = exchanged_inputs(edge.feeds, error, edge.error)
    return found[0] if found is not None else exchanged_outputs(edge)


def with_change_at_edge(
    causes: tuple[Cause, ...], edge: GraphEdge, error: float, seconds: float = _SECONDS
) -> tuple[Cause, ...] | None:
    """Return the causes, preceded by the change of an input or output that explains everything.

    `causes` are the results of a search over places in the same graph. Returns None if no change of
    an input or output explains the difference, or a known cause is more specific.
    """
    if any(cause.kind in _SAYS_MORE and cause.after <= _SAME for cause in causes):
        return None
    explained = any(cause.after <= _SAME and cause.corrected is not None for cause in causes)
    # A scale for each time step fits whatever scales them, anywhere in the graph.
    at_output = any(cause.boundary == "output" for cause in causes)
    change = changed_outputs(edge, error, fitted=at_output or not explained)
    if change is None and (not explained or any(edge.is_near_input(cause) for cause in causes)):
        change = changed_input(edge, error, seconds, fitted=not explained)
    if change is None:
        return _narrowing(causes, edge)
    place = next((cause for cause in causes if cause.boundary == change.boundary), None)
    if place is not None:
        _, _, node = place.text.partition(": ")
        change = dataclasses.replace(
            change,
            text=f"{change.text}: {node}" if node else change.text,
            node=place.node or change.node,
            module=place.module,
            source=place.source,
            operation=place.operation,
        )
    return (change,)


def _narrowing(causes: tuple[Cause, ...], edge: GraphEdge) -> tuple[Cause, ...] | None:
    """Return the causes with the one that rounds an input named so; None if there is none.

    Rounding such an input changes nothing, while other values do.
    """
    for place, cause in enumerate(causes):
        name = cause.tensor
        if cause.boundary != "input" or name is None or name not in edge.feeds:
            continue
        values = edge.feeds[name]
        rounded = values.astype(np.float16).astype(values.dtype)
        if values.dtype.kind != "f" or np.array_equal(rounded, values):
            continue
        found, same = edge.outputs(edge.feeds), edge.outputs({**edge.feeds, name: rounded})
        others = edge.outputs({**edge.feeds, name: np.roll(values, 1) * 1.5 + 0.25})
        if found and _equal(found, same) and not _equal(found, others):
            _, _, nodes = cause.text.partition(": ")
            text = f"the graph rounds {name!r} to float16: {nodes}"
            reworded = dataclasses.replace(cause, text=text)
            return (*causes[:place], reworded, *causes[place + 1 :])
    return None


def _equal(found: Values, others: Values | None) -> bool:
    return others is not None and all(np.array_equal(found[each], others[each]) for each in found)


def changed_input(
    edge: GraphEdge, error: float, seconds: float = _SECONDS, *, fitted: bool = True
) -> Cause | None:
    """Return how an input must be changed to make the graph correct; None if nothing helps.

    Inputs are tried individually, then all of one rank and type together (both images of a pair),
    and last, unless `fitted` is False, with a fitted scale and offset.
    """
    deadline = time.monotonic() + seconds
    # In a process of its own: with its axes permuted, a long signal is a batch of thousands.
    tried = survived(
        lambda report, deadly: _first_change(edge, error, deadline, report, deadly), deadline
    )
    if tried is not None:
        names, change = next(itertools.islice(_changes(edge), tried[0], None))
        return _input_cause(edge, names, change.text, error, tried[1])
    for names in _groups(edge) if fitted else ():
        if len(names) == 1 and (fit := fitted_input(edge, names[0], deadline)) is not None:
            text, after = fit
            if not explains(error, after):
                continue
            return _input_cause(edge, names, text, error, after)
    return None


def _changes(edge: GraphEdge) -> Iterator[tuple[tuple[str, ...], TensorChange]]:
    """Yield the changes of inputs to try: of one alone, then of all of one rank and type."""
    for names in _groups(edge):
        for row in INPUT_CHANGES.values():
            for change in row(edge.feeds[names[0]]):
                yield names, change


def _first_change(
    edge: GraphEdge, error: float, deadline: float, report: Report, deadly: frozenset[int]
) -> tuple[int, float] | None:
    """Return the number of the first change that explains the error, and what it leaves of it."""
    for number, (names, change) in enumerate(_changes(edge)):
        if number in deadly:
            continue
        if time.monotonic() > deadline:
            break
        report(number)
        fed = _changed(edge.feeds, names, change.apply)
        if fed is not None and explains(error, after := edge.error(fed)):
            return number, after
    return None


def _groups(edge: GraphEdge) -> Iterator[tuple[str, ...]]:
    names = [name for name in edge.feeds if name in edge.graph.inputs]
    yield from ((name,) for name in names)
    alike: dict[tuple[int, str], list[str]] = {}
    for name in names:
        values = edge.feeds[name]
        alike.setdefault((values.ndim, values.dtype.str), []).append(name)
    yield from (tuple(group) for group in alike.values() if len(group) > 1)


def _changed(
    feeds: Values, names: tuple[str, ...], apply: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Return the feeds with some of them changed; None if a change has no effect on them."""
    changed = {name: np.ascontiguousarray(apply(feeds[name])) for name in names}
    if all(np.array_equal(values, feeds[name]) for name, values in changed.items()):
        return None
    return {**feeds, **changed}


def _input_cause(
    edge: GraphEdge, names: tuple[str, ...], text: str, before: float, after: float
) -> Cause:
    listed = " and ".join(repr(name) for name in names)
    return Cause(
        "extra",
        f"the graph expects {listed} {text}",
        node=edge.reader(names[0]),
        tensor=names[0],
        before=before,
        after=after,
        boundary="input",
    )


def changed_outputs(edge: GraphEdge, before: float, *, fitted: bool = True) -> Cause | None:
    """Return how outputs differ from the original's as whole tensors, if all that differ do so.

    Unless `fitted` is False, a number for each slice along an axis may be fitted.
    """
    found = edge.outputs(edge.feeds)
    if found is None:
        return None
    expected = {name: edge.recording.output(name) for name in edge.recording.outputs}
    texts: dict[str, str] = {}
    after = 0.0
    for name, values in expected.items():
        if name in found and relative_error(found[name], values) <= _SAME:
            continue
        best = _change_of(name, found, expected, fitted=fitted)
        if best is None:
            return None
        texts[name], error = best
        after = max(after, error)
    if not texts:
        return None
    first = next(iter(texts))
    return Cause(
        "extra",
        "; ".join(texts.values()),
        node=edge.producer(first),
        tensor=first,
        before=before,
        after=after,
        boundary="output",
    )


def _change_of(
    name: str, found: Values, expected: Values, *, fitted: bool
) -> tuple[str, float] | None:
    """Return how an output is derived from its own original or from another output's."""
    if name not in found:
        return None
    for other in (name, *(each for each in expected if each != name)):
        own = relative_error(found[name], expected[name])
        if (best := _explained(found[name], expected[other], own, fitted=fitted)) is not None:
            text, error = best
            whose = "the original's" if other == name else f"the original's {other!r}"
            return f"output {name!r} is {whose} {text}".rstrip(), error
    return None


def _explained(
    found: np.ndarray, expected: np.ndarray, before: float, *, fitted: bool
) -> tuple[str, float] | None:
    """Return how an output is derived from one of the original's, and the remaining error."""
    if found.dtype.kind not in "fiub" or expected.dtype.kind not in "fiub":
        return None
    if explains(before, error := relative_error(found, expected)):
        return "", error
    if is_flat(found) or is_flat(expected):
        return None  # a constant is anything, scaled
    own, other = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        for kind, row in OUTPUT_CHANGES.items():
            for change in row(own, other) if fitted or kind not in FITTED else ():
                if is_flat(change.target) or not np.isfinite(change.target).any():
                    continue
                error = relative_error(change.corrected, change.target)
                if explains(before, error):
                    return change.text, error
    return None

"""Weights that an operation should hold: those of the original, in a program's own arrangement."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.runtimes.coreml.as_graph import definitions
from convkit.worker.cause.matching.axis_layouts import layouts
from convkit.worker.cause.other_formats.format_operations import Alternative
from convkit.worker.cause.other_formats.source_operation import SourceStep
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.graph.operators.node_builder import INSIDE

# Arguments that are weights, and may be left out. What leaves them out has them as zeros or ones.
_OPTIONAL = ("bias", "bias_back", "gamma", "beta")
# torch's order of an LSTM's gates is input, forget, cell, output; a program's is input, forget,
# output, cell.
_GATES, _ORDER = 4, (0, 1, 3, 2)


Values = Mapping[str, np.ndarray]


def other_weights(
    step: SourceStep, values: Mapping[str, np.ndarray], region: Region
) -> Iterator[Alternative]:
    """Yield an operation with the original's weights instead of its own, or in addition."""
    for name, given in step.arguments.items():
        if isinstance(given, str) and is_constant(given, values, region):
            now = values[given]
            for text, weight in _weights(region, now.shape) if _is_weight(now) else ():
                if not np.array_equal(now, weight):
                    text = f"its {name} should hold the original's {text}"  # noqa: PLW2901
                    yield with_constant(step, name, weight, "weight", text)
    for name in _OPTIONAL:
        shape = _shape_of(name, step, values)
        absent = name not in step.arguments and definitions.takes(step.kind, name)
        for text, weight in _weights(region, shape) if absent and shape else ():
            yield with_constant(step, name, weight, "missing", f"it lacks the original's {text}")
    yield from _affine(step, values, region)


def _affine(
    step: SourceStep, values: Mapping[str, np.ndarray], region: Region
) -> Iterator[Alternative]:
    """Yield a norm with the gain and the shift that it lacks, both."""
    shape = _shape_of("gamma", step, values)
    takes = all(definitions.takes(step.kind, each) for each in ("gamma", "beta"))
    if not takes or shape is None or {"gamma", "beta"} & step.arguments.keys():
        return
    own = [(n, each) for n, each in region.weights.items() if each.shape == shape]
    for (one, gain), (other, shift) in itertools.permutations(own, 2):
        names = {each: f"{step.results[0]}{INSIDE}{each} corrected" for each in ("gamma", "beta")}
        constants = {names["gamma"]: gain, names["beta"]: shift}
        both = dataclasses.replace(step, arguments={**step.arguments, **names})
        text = f"it lacks the original's {one} and {other}"
        yield Alternative("missing", text, both, constants)


def _is_weight(now: np.ndarray) -> bool:
    return now.dtype.kind == "f" and now.size > 1


def _shape_of(
    name: str, step: SourceStep, values: Mapping[str, np.ndarray]
) -> tuple[int, ...] | None:
    """Return the shape that a left-out weight would have."""

    def value(argument: str) -> np.ndarray | None:
        given = step.arguments.get(argument)
        return values.get(given) if isinstance(given, str) else None

    own = value("weight_ih") if value("weight_ih") is not None else value("weight")
    if name.startswith("bias"):
        return None if own is None else own.shape[:1]
    x, axes = value("x"), value("axes")
    if x is None:
        return None
    if axes is None:  # a norm of channels
        return x.shape[1:2]
    return tuple(x.shape[axis] for axis in sorted(int(a) % x.ndim for a in axes.reshape(-1)))


def _weights(region: Region, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what weights of the original make a weight of that shape."""
    size = int(np.prod(shape))
    own = {n: each for n, each in region.weights.items() if each.size == size}
    for name, weight in own.items():
        for layout in layouts(weight.shape, shape):
            yield name, layout.apply(weight).astype(np.float32)
    flat = {n: each.reshape(-1) for n, each in own.items()}
    if len(shape) == 1:
        for (one, first), (other, second) in itertools.combinations(flat.items(), 2):
            both = f"{one} and {other}, added"
            yield both, (first + second).astype(np.float32)
            yield from _by_gate(both, first + second)
    for name, weight in own.items():
        if weight.shape == shape:
            yield from _by_gate(name, weight)


def _by_gate(name: str, weight: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if len(weight) % _GATES == 0:
        parts = np.split(weight, _GATES)
        yield name, np.concatenate([parts[place] for place in _ORDER]).astype(np.float32)


def is_constant(name: str, values: Values, region: Region) -> bool:
    """Say whether a value is known before the program runs. The graph holds only those constants
    that its nodes read as tensors.
    """
    graph = region.graph
    return name in values and name not in graph.producers and name not in graph.inputs


def with_constant(
    step: SourceStep, argument: str, values: np.ndarray, kind: str, text: str
) -> Alternative:
    """Return an operation that reads other values as one argument."""
    name = f"{step.results[0]}{INSIDE}{argument} corrected"
    other = dataclasses.replace(step, arguments={**step.arguments, argument: name})
    return Alternative(kind, text, other, {name: values})  # type: ignore[arg-type]

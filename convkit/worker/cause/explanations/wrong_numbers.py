"""Candidate explanations that change a number in the graph: scales, epsilons, indices."""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, reads
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, with_constants

# Elements. Larger constants of whole numbers are tables; changing one entry explains nothing.
_FEW = 16
_DIVISIONS = ("Div", "Mod", "Range")
# Elements. A number that makes fewer values right explains nothing: some number always does.
_ENOUGH = 4
# A number below this share of the one that the search began with may be what rounding left of 0.
_LEFTOVER = 1e-6


def whole_numbers(region: Region) -> Iterator[Rewrite]:
    """Change small constants of whole numbers: indices, axes, starts and ends, shapes."""
    # onnxruntime does not catch an integer division by zero: it ends the process.
    divides = any(_divides_integers(region, region.graph.nodes[index]) for index in region.nodes)
    for name, values in region.constants():
        if values.dtype not in (np.int32, np.int64) or values.size > _FEW or not values.size:
            continue  # narrower integers are zero points: see `quantized`
        seen = {values.tobytes()}
        for other in _integers(region, values):
            if other.tobytes() in seen or (divides and not other.all()):
                continue
            seen.add(other.tobytes())
            text = f"{name} is {_listed(values)} and should be {_listed(other)}"
            graph = with_constants(region.graph, {name: other})
            yield Rewrite("constant", _reader(region, name), text, graph, name)


def _divides_integers(region: Region, node: onnx.NodeProto) -> bool:
    """Return True if a node divides and may do so with integers: none of its inputs is known to be
    float.
    """
    known = [region.feeds.get(name, region.graph.constants.get(name)) for name in node.input]
    floats = any(values is not None and values.dtype.kind == "f" for values in known)
    return node.op_type in _DIVISIONS and not floats


def _integers(region: Region, values: np.ndarray) -> Iterator[np.ndarray]:
    for place, delta in itertools.product(range(values.size), (1, -1)):
        other = values.copy()
        with np.errstate(over="ignore"):  # an end of "as far as there is" wraps around
            other.flat[place] += delta
        yield other
    for step in (1, -1, 2, -2):
        yield (values + step).astype(values.dtype)
    yield values.reshape(-1)[::-1].reshape(values.shape)
    yield (-values).astype(values.dtype)
    numbers = [int(each) for each in region.scalars() if abs(each) < 1 << 31 and each == int(each)]
    for number in numbers:
        for place in range(min(values.size, 4)):
            other = values.copy()
            other.flat[place] = number
            yield other
    for operation in region.operations:
        for _, value in operation.scalars:
            if isinstance(value, tuple) and len(value) == values.size:
                yield np.asarray(value).astype(values.dtype).reshape(values.shape)
    for first, second in itertools.combinations(range(min(values.size, 5)), 2):
        other = values.copy()
        other.flat[first], other.flat[second] = values.flat[second], values.flat[first]
        yield other


def fractions(region: Region) -> Iterator[Rewrite]:
    """Change a single number: to one of the original's, or to the one that fits, if one does."""
    for name, values in region.constants():
        if values.dtype.kind != "f" or values.size != 1 or _is_right(region, values):
            continue
        found = fit(
            region,
            lambda number, name=name, values=values: with_constants(  # type: ignore[misc]
                region.graph, {name: np.full_like(values, number)}
            ),
            float(values.flat[0]),
        )
        likely = list(_likely(region.scalars()))
        # A number of the original's near the one that fits is meant, not the one that fits.
        near = [] if found is None else [n for n in likely if math.isclose(n, found, rel_tol=1e-2)]
        numbers = [*near, *([] if found is None else [found]), *likely]
        for number in dict.fromkeys(numbers):
            other = np.full_like(values, number)
            if other == values or not np.isfinite(other).all():
                continue
            text = f"{name} is {float(values.flat[0]):.6g} and should be {number:.6g}"
            graph = with_constants(region.graph, {name: other})
            fitted = int(number not in near and number == found)
            yield Rewrite("constant", _reader(region, name), text, graph, name, fitted)


def own_numbers(region: Region, node: str) -> Iterator[Rewrite]:
    """Change a single number of one node to one that the original's own arguments name.

    One by which nothing changes is left out: with it, the node would be superfluous.
    """
    scalars = [each for each in region.scalars() if each not in (0.0, 1.0)]
    for rewrite in itertools.chain(whole_numbers(region), fractions(region)):
        if rewrite.node == node and rewrite.constant is not None:
            constant = rewrite.graph.constants[rewrite.constant]
            number = float(constant.flat[0])
            if constant.size == 1 and any(
                math.isclose(number, each, rel_tol=1e-6) for each in scalars
            ):
                yield rewrite


def _is_right(region: Region, values: np.ndarray) -> bool:
    """Say whether a constant is the weight that the original reads here: another number in it would
    make up for something else.
    """
    return any(array.size == 1 and array == values.flat[0] for array in region.weights.values())


def _likely(numbers: list[float]) -> Iterator[float]:
    for number in numbers:
        yield number
        yield -number
        if number > 0:
            yield from (1 / number, math.sqrt(number), 1 / math.sqrt(number))
    yield from (1e-5, 1e-6, 1e-12, 1e-3)


def fit(region: Region, build: Callable[[float], Graph], number: float) -> float | None:
    """Solve for the number that makes the target correct, by Gauss-Newton from the current one.

    `build` returns the graph with a given number. None if the search does not converge, or the
    target has too few elements to tell.
    """

    def target(value: float) -> np.ndarray | None:
        found = region.computed(build(value))
        return None if found is None else found.astype(np.float64)

    expected = region.expected.astype(np.float64)
    if expected.size < _ENOUGH:
        return None
    start = number
    for _ in range(5):
        step = max(abs(number) * 1e-2, 1e-4)
        here, there = target(number), target(number + step)
        if here is None or there is None or here.shape != expected.shape:
            return None
        with np.errstate(all="ignore"):
            slope = np.nan_to_num((there - here) / step).ravel()
            rest = np.nan_to_num(expected - here, posinf=0.0, neginf=0.0).ravel()
        power = float(slope @ slope)
        if power == 0 or not math.isfinite(power):
            return None
        change = float(slope @ rest) / power
        number += change
        if not math.isfinite(number) or abs(number) > 1e12:
            return None
        if abs(change) <= 1e-7 * abs(number):
            break
    # Towards zero, each step leaves what rounding makes of the one before, and never ends.
    if abs(number) <= _LEFTOVER * abs(start) and _fits_as_well(
        target(0.0), target(number), expected
    ):
        return 0.0
    return _rounded(number)


def _fits_as_well(found: np.ndarray | None, other: np.ndarray | None, expected: np.ndarray) -> bool:
    """Return True if the first result is as close to the expected one as the second."""
    if found is None or other is None or not found.shape == other.shape == expected.shape:
        return False
    with np.errstate(all="ignore"):
        error, least = np.abs(found - expected).max(), np.abs(other - expected).max()
    return bool(error <= least)


def _rounded(number: float) -> float:
    """Return the nearest number with few digits if it is within float32's accuracy."""
    for digits in range(1, 7):
        short = float(f"{number:.{digits}g}")
        if abs(short - number) <= 2e-6 * abs(number):
            return short
    return number


def _reader(region: Region, constant: str) -> str:
    nodes = [region.graph.nodes[index] for index in region.nodes]
    return str(next((n.output[0] for n in nodes if constant in reads(n)), region.target))


def _listed(values: np.ndarray) -> str:
    return str(values.tolist())

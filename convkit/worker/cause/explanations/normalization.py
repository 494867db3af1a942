"""Normalizations, recognized by what they compute: which statistics, and over which axes."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import Rewrite, inserted, pinned, with_constants
from convkit.worker.cause.search_types.search_results import Kind

_EPSILONS = (0.0, 1e-5, 1e-6, 1e-12, 1e-3, 1e-8)
# With fewer for each number that is fitted, anything fits.
_VALUES_PER_NUMBER = 4
_GROUPS_PER_NUMBER = 2
# Elements that rule out most normalizations, and how many times as much they may be off.
_FEW, _LOOSELY = 256, 10
# Indices of each axis that is not normalized over: their groups rule out most normalizations.
_SOME_GROUPS = 3

# Takes a part of a value, or of the statistics that are broadcast to it.
Part = Callable[[np.ndarray], np.ndarray]


def normalizations(region: Region) -> Iterator[Rewrite]:
    """Normalize a known value as the original does, if a common normalization has its result."""
    found, expected = region.found(), region.expected
    if found is None or expected.dtype != np.float32:
        return
    for name, given in region.feeds.items():
        if given.shape != expected.shape or given.dtype != np.float32 or is_flat(given):
            continue
        should = _way(given, expected, region)
        own = None if should is None else _way(given, found, region)
        # Of a value that no node reads here, it would be a matter of what is read.
        if should is None or own == should or (own is None and not region.reads(name)):
            continue
        text = (
            f"it should compute {should} of {name}"
            if own is None
            else f"it computes {own} of {name} and should compute {should}"
        )
        graph = pinned(region.graph, region.target, expected)
        kind: Kind = "missing" if relative_error(found, given) <= EQUAL else "operator"
        yield Rewrite(kind, region.target, text, graph)


def groups(region: Region) -> Iterator[Rewrite]:
    """Give a group norm, written as an instance norm of reshaped values, another number of groups:
    in the shape and the gains and shifts at once.
    """
    counts = [int(each) for each in region.scalars() if each > 0 and each == int(each)]
    for index in region.nodes:
        node = region.graph.nodes[index]
        if node.op_type != "InstanceNormalization" or len(node.input) < 3:
            continue
        gain = region.graph.constants.get(node.input[1])
        if gain is None or len(region.shapes.get(node.input[0], ())) != 3:
            continue
        for count in dict.fromkeys(counts):
            if count == gain.size:
                continue
            edge = RegionEdge(node.output[0], 0, node.input[0])
            graph = inserted(region.graph, edge, f"Reshape(x, [0, {count}, -1])")
            constants = {node.input[1]: np.ones(count, np.float32)}
            constants[node.input[2]] = np.zeros(count, np.float32)
            text = f"it normalizes {gain.size} groups of channels and should normalize {count}"
            graph = with_constants(graph, constants)
            yield Rewrite("attribute", node.output[0], text, graph)


def _way(given: np.ndarray, made: np.ndarray, region: Region) -> str | None:
    """Return the normalization that leads from one value to another: as it is, or with a gain and
    a shift for each feature.
    """
    epsilons = list(dict.fromkeys([*(e for e in region.scalars() if 0 < e < 1), *_EPSILONS]))
    wide, goal = given.astype(np.float64), made.astype(np.float64)
    with np.errstate(all="ignore"):
        ways = [way for axes in _axes(given.ndim) for way in _likely(wide, goal, axes, epsilons)]
        for way in (*ways, *_grouped(wide, region)):
            if _makes(way, goal):
                return way.text
        return next((way.text for way in ways if _makes_scaled(way, goal)), None)


@dataclasses.dataclass(frozen=True)
class _Way:
    """A normalization over `axes`. It computes a part of its result from that part of what it
    reads: most are ruled out by a few elements.
    """

    text: str
    axes: tuple[int, ...]
    compute: Callable[[Part], np.ndarray]


def _likely(
    wide: np.ndarray, goal: np.ndarray, axes: tuple[int, ...], epsilons: Sequence[float]
) -> Iterator[_Way]:
    """Yield the normalizations over some axes that a few of their groups do not rule out.

    What makes every element of the goal makes those of any groups.
    """
    some = tuple(
        slice(None) if axis in axes else slice(0, size, max(1, size // _SOME_GROUPS))
        for axis, size in enumerate(goal.shape)
    )
    should, limit = goal[some], _LOOSELY * EQUAL * float(np.abs(goal).max(initial=0))
    possible = [
        number
        for number, way in enumerate(_ways(wide[some], axes, epsilons))
        if not limit < _least_off(way.compute(_whole), should)
    ]
    ways = list(_ways(wide, axes, epsilons)) if possible else []
    yield from (ways[number] for number in possible)


def _least_off(values: np.ndarray, goal: np.ndarray) -> float:
    """Return by how much values are off as they are, or with the best gain and shift for each
    feature, whichever is less.
    """
    made = [values, *(_rescaled(values, goal, axis) for axis in _feature_axes(goal.ndim))]
    return min(float(np.abs(each - goal).max()) for each in made)


def _makes(way: _Way, goal: np.ndarray) -> bool:
    """Say whether a way's result is the goal."""
    places = np.linspace(0, goal.size - 1, min(goal.size, _FEW)).astype(np.int64)
    index = np.unravel_index(np.unique(places), goal.shape)
    found = way.compute(lambda each: np.broadcast_to(each, goal.shape)[index])
    if not relative_error(found, goal[index]) <= _LOOSELY * EQUAL:
        return False
    return relative_error(way.compute(_whole), goal) <= EQUAL


def _whole(values: np.ndarray) -> np.ndarray:
    return values


def _grouped(wide: np.ndarray, region: Region) -> Iterator[_Way]:
    """Yield group norms of a value with the original's gains and shifts, one for each channel.

    In one picture, a gain and a shift for each channel could make any number of groups any other.
    """
    if wide.ndim < 3:
        return
    count, channels = wide.shape[:2]
    factors = [each for each in region.weights.values() if each.shape == (channels,)]
    epsilons = dict.fromkeys([*(each for each in region.scalars() if 0 < each < 1), 1e-5])
    along = (1, channels, *(1,) * (wide.ndim - 2))
    for groups, epsilon in itertools.product(range(1, channels + 1), epsilons):
        if channels % groups or len(factors) < 2:
            continue
        parts = wide.reshape(count, groups, -1)
        centered = parts - parts.mean(-1, keepdims=True)
        deviation = np.sqrt((centered * centered).mean(-1, keepdims=True) + epsilon)
        values = (centered / deviation).reshape(wide.shape)
        for gain, shift in itertools.permutations(factors, 2):
            text = f"a group norm of {groups} group{'s' if groups > 1 else ''}"
            yield _Way(text, (), _scaled(values, gain.reshape(along), shift.reshape(along)))


def _scaled(
    values: np.ndarray, gain: np.ndarray, shift: np.ndarray
) -> Callable[[Part], np.ndarray]:
    return lambda part: part(values) * part(gain) + part(shift)


def _axes(rank: int) -> Iterator[tuple[int, ...]]:
    yield (rank - 1,)
    if rank > 2:
        yield (1,)
        yield tuple(range(2, rank))
        yield tuple(range(1, rank))
        yield (0, *range(2, rank))


def _ways(wide: np.ndarray, axes: tuple[int, ...], epsilons: Sequence[float]) -> Iterator[_Way]:
    count = int(np.prod([wide.shape[axis] for axis in axes]))
    if count < 2:
        return
    mean = wide.mean(axes, keepdims=True)
    square = (wide * wide).sum(axes, keepdims=True)
    spread = ((wide - mean) ** 2).sum(axes, keepdims=True)
    total = np.abs(wide).sum(axes, keepdims=True)

    def divided(text: str, divisor: np.ndarray, *, centered: bool) -> _Way:
        middle = mean if centered else np.zeros_like(mean)
        return _Way(
            f"{text} over {_shown(axes)}",
            axes,
            lambda part: (part(wide) - part(middle)) / part(divisor),
        )

    for epsilon in epsilons:
        variance, mean_square = spread / count, square / count
        yield divided("a layer norm", np.sqrt(variance + epsilon), centered=True)
        yield divided("an RMS norm", np.sqrt(mean_square + epsilon), centered=False)
        if epsilon:
            outside = "an RMS norm with its epsilon outside the square root"
            yield divided(outside, np.sqrt(mean_square) + epsilon, centered=False)
        if not epsilon:
            yield divided("an L2 normalization", np.sqrt(square), centered=False)
            yield divided("an L1 normalization", total, centered=False)
            yield divided("values without their mean", np.ones_like(mean), centered=True)
        unbiased = np.sqrt(spread / (count - 1)) + epsilon
        yield divided("standard scores (with n - 1)", unbiased, centered=True)
        biased = np.sqrt(variance) + epsilon
        yield divided("standard scores (with n)", biased, centered=True)


def _makes_scaled(way: _Way, goal: np.ndarray) -> bool:
    """Say whether a way's result, with a gain and a shift for each feature, is the goal."""
    for axis in _feature_axes(goal.ndim):
        others = [each for each in range(goal.ndim) if each not in way.axes]
        groups = np.prod([goal.shape[each] for each in others])
        if axis not in way.axes and groups < _GROUPS_PER_NUMBER * goal.shape[axis]:
            continue  # a gain for each group makes any normalization any other
        if goal.size < _VALUES_PER_NUMBER * goal.shape[axis]:
            continue
        few = sorted({0, goal.shape[axis] // 2, goal.shape[axis] - 1})

        def part(each: np.ndarray, axis: int = axis, few: list[int] = few) -> np.ndarray:
            return np.take(np.broadcast_to(each, goal.shape), few, axis)

        if not _scaled_error(way.compute(part), part(goal), axis) <= _LOOSELY * EQUAL:
            continue
        if _scaled_error(way.compute(_whole), goal, axis) <= EQUAL:
            return True
    return False


def _feature_axes(rank: int) -> tuple[int, ...]:
    """Return the axes along which features may lie: the second and the last, where there are."""
    return tuple({min(1, rank - 1), rank - 1}) if rank else ()


def _scaled_error(values: np.ndarray, goal: np.ndarray, axis: int) -> float:
    """Return the error that the best gain and shift for each feature along an axis leave."""
    if not np.isfinite(values).all():
        return math.inf
    return relative_error(_rescaled(values, goal, axis), goal)


def _rescaled(values: np.ndarray, goal: np.ndarray, axis: int) -> np.ndarray:
    """Return values with the gain and the shift for each feature that come nearest to the goal."""
    others = tuple(each for each in range(values.ndim) if each != axis)
    middle, mean = (each.mean(others, keepdims=True) for each in (values, goal))
    centered = values - middle
    power = (centered * centered).sum(others, keepdims=True)
    gain = (centered * goal).sum(others, keepdims=True) / np.where(power > 0, power, 1)
    return centered * gain + mean


def _shown(axes: tuple[int, ...]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {list(axes)}"

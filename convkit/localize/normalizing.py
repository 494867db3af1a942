"""Normalizations, recognized by what they compute: which statistics, and over which axes."""

import itertools
from collections.abc import Iterator

import numpy as np
from onnx import helper

from convkit.localize.diagnosis import Kind
from convkit.localize.edits import Build, Rewrite, inserted, pinned, with_constants
from convkit.localize.matching import is_flat, relative_error
from convkit.localize.parting import EQUAL
from convkit.localize.region import Edge, Region

_EPSILONS = (0.0, 1e-5, 1e-6, 1e-12, 1e-3, 1e-8)
# With fewer for each number that is fitted, anything fits.
_VALUES_PER_NUMBER = 4
_GROUPS_PER_NUMBER = 2


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
            name = f"{node.output[0]}//groups"
            edge = Edge(node.output[0], 0, node.input[0])
            graph = inserted(region.graph, edge, _regrouped(name, count))
            constants = {node.input[1]: np.ones(count, np.float32)}
            constants[node.input[2]] = np.zeros(count, np.float32)
            text = f"it normalizes {gain.size} groups of channels and should normalize {count}"
            graph = with_constants(graph, constants)
            yield Rewrite("attribute", node.output[0], text, graph)


def _regrouped(name: str, count: int) -> Build:
    """Return what divides the same elements into another number of groups."""
    shape = {name: np.array([0, count, -1], np.int64)}
    return lambda given, made: ([helper.make_node("Reshape", [given, name], [made])], shape)


def _way(given: np.ndarray, made: np.ndarray, region: Region) -> str | None:
    """Return the normalization that leads from one value to another: as it is, or with a gain and
    a shift for each feature.
    """
    epsilons = dict.fromkeys([*(e for e in region.scalars() if 0 < e < 1), *_EPSILONS])
    ways = [
        (f"{text} over {_shown(axes)}", values, axes)
        for axes, epsilon in itertools.product(_axes(given.ndim), epsilons)
        for text, values in _ways(given.astype(np.float64), axes, epsilon)
        if np.isfinite(values).all()
    ]
    wide = made.astype(np.float64)
    exact = itertools.chain(((text, values) for text, values, _ in ways), _grouped(given, region))
    scaled = (text for text, values, axes in ways if _is_scaled(values, wide, axes))
    same = (text for text, values in exact if relative_error(values, wide) <= EQUAL)
    return next(itertools.chain(same, scaled), None)


def _grouped(given: np.ndarray, region: Region) -> Iterator[tuple[str, np.ndarray]]:
    """Yield group norms of a value with the original's gains and shifts, one for each channel.

    In one picture, a gain and a shift for each channel could make any number of groups any other.
    """
    if given.ndim < 3:
        return
    count, channels = given.shape[:2]
    factors = [each for each in region.weights.values() if each.shape == (channels,)]
    epsilons = dict.fromkeys([*(each for each in region.scalars() if 0 < each < 1), 1e-5])
    wide, along = given.astype(np.float64), (1, channels, *(1,) * (given.ndim - 2))
    for groups, epsilon in itertools.product(range(1, channels + 1), epsilons):
        if channels % groups:
            continue
        parts = wide.reshape(count, groups, -1)
        centered = parts - parts.mean(-1, keepdims=True)
        deviation = np.sqrt((centered * centered).mean(-1, keepdims=True) + epsilon)
        values = (centered / deviation).reshape(wide.shape)
        for gain, shift in itertools.permutations(factors, 2):
            text = f"a group norm of {groups} group{'s' if groups > 1 else ''}"
            yield text, values * gain.reshape(along) + shift.reshape(along)


def _axes(rank: int) -> Iterator[tuple[int, ...]]:
    yield (rank - 1,)
    if rank > 2:
        yield (1,)
        yield tuple(range(2, rank))
        yield tuple(range(1, rank))
        yield (0, *range(2, rank))


def _ways(
    wide: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> Iterator[tuple[str, np.ndarray]]:
    centered = wide - wide.mean(axes, keepdims=True)
    count = int(np.prod([wide.shape[axis] for axis in axes]))
    if count < 2:
        return
    square = (wide * wide).sum(axes, keepdims=True)
    spread = (centered * centered).sum(axes, keepdims=True)
    with np.errstate(all="ignore"):
        yield "a layer norm", centered / np.sqrt(spread / count + epsilon)
        yield "an RMS norm", wide / np.sqrt(square / count + epsilon)
        if epsilon:
            outside = "an RMS norm with its epsilon outside the square root"
            yield outside, wide / (np.sqrt(square / count) + epsilon)
        if not epsilon:
            yield "an L2 normalization", wide / np.sqrt(square)
            yield "an L1 normalization", wide / np.abs(wide).sum(axes, keepdims=True)
            yield "values without their mean", centered
        deviation = np.sqrt(spread / (count - 1))
        yield "standard scores (with n - 1)", centered / (deviation + epsilon)
        yield "standard scores (with n)", centered / (np.sqrt(spread / count) + epsilon)


def _is_scaled(values: np.ndarray, made: np.ndarray, axes: tuple[int, ...]) -> bool:
    """Say whether values normalized over `axes`, with a gain and a shift for each feature, are
    those made.
    """
    for axis in {1, values.ndim - 1}:
        groups = np.prod([values.shape[each] for each in range(values.ndim) if each not in axes])
        if axis not in axes and groups < _GROUPS_PER_NUMBER * values.shape[axis]:
            continue  # a gain for each group makes any normalization any other
        others = tuple(each for each in range(values.ndim) if each != axis)
        if values.size < _VALUES_PER_NUMBER * values.shape[axis]:
            continue
        middle, mean = (each.mean(others, keepdims=True) for each in (values, made))
        centered = values - middle
        power = (centered * centered).sum(others, keepdims=True)
        gain = (centered * made).sum(others, keepdims=True) / np.where(power > 0, power, 1)
        if relative_error(centered * gain + mean, made) <= EQUAL:
            return True
    return False


def _shown(axes: tuple[int, ...]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {list(axes)}"

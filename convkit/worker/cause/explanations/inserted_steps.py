"""Candidate explanations that add something the graph lacks: an activation, a bias, a mask, an
order.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import Build, Rewrite, appended, inserted
from convkit.worker.cause.search_types.search_results import Kind
from convkit.worker.graph.operators.composed_operators import GELU
from convkit.worker.graph.operators.node_builder import Operand

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Axes up to this size are tried in the orders of channel shuffles and repeated heads.
_SHUFFLED = 64
# Elements that must have the least or the largest value for it to be a bound, and values for each
# number that is fitted: with fewer, anything fits.
_REPEATED, _VALUES_PER_NUMBER = 3, 8
_ACTIVATIONS = (
    *("Relu", "Sigmoid", "Tanh", "Neg", "Exp", "Log", "Sqrt", "Abs", "Reciprocal", "Softplus"),
    *("Erf", "HardSwish", "Elu", "LeakyRelu", "Floor", "Round"),
)


def at_end(region: Region) -> Iterator[Rewrite]:
    """Add something after the target. Where all values should be one number, much would make them
    that, such as rounding down: nothing is added there, or inside.
    """
    if is_flat(region.expected):
        return
    shape, dtype = region.shapes.get(region.target, region.expected.shape), region.expected.dtype
    plain = (*_operands(region, dtype), *_changes(region, shape, dtype))
    fitted = (*_bounds(region), *_fitted(region))
    for count, changes in enumerate((plain, fitted)):
        for text, build in changes:
            graph = appended(region.graph, region.target, build)
            lacking = f"its output lacks {text}"
            added = (region.target, text)
            yield Rewrite(_kind(text), region.target, lacking, graph, fitted=count, added=added)


def inside(region: Region) -> Iterator[Rewrite]:
    """Add something to one input of a node of the region."""
    if is_flat(region.expected):
        return
    for edge in region.edges():
        shape = region.shapes.get(edge.value)
        if shape is None:
            continue
        dtype = region.dtypes.get(edge.value, np.dtype("f4"))
        for text, build in (*_operands(region, dtype), *_changes(region, shape, dtype)):
            yield _insertion(region, edge, text, build)


def on_all_inputs(region: Region) -> Iterator[Rewrite]:
    """Add the same to all inputs of a node that have one shape: what two branches share is lost in
    both, such as the normalization that ends two towers.
    """
    if is_flat(region.expected):
        return
    for reader, group in itertools.groupby(region.edges(), key=lambda edge: edge.reader):
        edges = list(group)
        shapes = {region.shapes.get(edge.value) for edge in edges}
        values = list(dict.fromkeys(edge.value for edge in edges))
        shape = next(iter(shapes))
        if len(values) < 2 or len(shapes) > 1 or shape is None:
            continue
        dtype = region.dtypes.get(values[0], np.dtype("f4"))
        for text, build in (*_operands(region, dtype), *_changes(region, shape, dtype)):
            graph = region.graph
            for edge in edges:
                graph = inserted(graph, edge, build)
            lacking = f"its inputs {' and '.join(values)} lack {text} each"
            yield Rewrite(_kind(text), reader, lacking, graph)


def _insertion(region: Region, edge: RegionEdge, text: str, build: Build) -> Rewrite:
    graph = inserted(region.graph, edge, build)
    if (both := _transposed_twice(graph, edge)) is not None:
        return Rewrite("attribute", edge.value, both, graph)
    lacking = f"its input {edge.value} lacks {text}"
    return Rewrite(_kind(text), edge.reader, lacking, graph, added=(edge.value, text))


def _transposed_twice(graph: Graph, edge: RegionEdge) -> str | None:
    """Return what a Transpose should do that a second one was added to."""
    reader = graph.nodes[graph.producers[edge.reader]]
    added = graph.nodes[graph.producers[reader.input[edge.place]]]
    own = graph.producers.get(edge.value)
    if own is None or {added.op_type, graph.nodes[own].op_type} != {"Transpose"}:
        return None
    first, second = (_axes(graph.nodes[own]), _axes(added))
    if not first or len(first) != len(second) or len(graph.readers[edge.value]) > 1:
        return None
    return f"perm is {first} and should be {[first[axis] for axis in second]}"


def _axes(node: onnx.NodeProto) -> list[int]:
    return next((list(each.ints) for each in node.attribute if each.name == "perm"), [])


def _kind(text: str) -> Kind:
    return "order" if text.startswith(("the order", "a shift", "a permutation")) else "missing"


def _with(operator: str, operand: Operand) -> Build:
    return lambda built, given: built.write(operator, given, operand)


def _wide(operator: str, operand: str, shape: tuple[int, ...]) -> Build:
    return lambda built, given: built.compute(
        f"{operator}(given, Reshape(operand, shape))", given=given, operand=operand, shape=shape
    )


def _bounds(region: Region) -> Iterator[tuple[str, Build]]:
    """Clip to a bound that several of the expected values have."""
    expected = region.expected
    if expected.dtype.kind != "f" or not expected.size:
        return
    for bound, operator, word in (
        (expected.min(), "Max", "lower"),
        (expected.max(), "Min", "upper"),
    ):
        if (expected == bound).sum() >= _REPEATED and math.isfinite(bound):
            text = f"a clip with the {word} bound {float(bound):.6g}"
            yield text, _with(operator, np.asarray(bound))


def _fitted(region: Region) -> Iterator[tuple[str, Build]]:
    """Scale and shift by the numbers that fit best, for all elements alike."""
    found, expected = region.found("fi"), region.expected
    if found is None or expected.size < _VALUES_PER_NUMBER:
        return
    dtype = expected.dtype
    if dtype.kind == "i":
        step = int(np.asarray(expected - found).flat[0])
        yield f"an offset of {step:+d}{_as_size(region, step)}", _with("Add", np.array(step, dtype))
    elif dtype == np.float32 and np.isfinite(found).all() and np.isfinite(expected).all():
        own, other = found.astype(np.float64), expected.astype(np.float64)
        power = float((own * own).sum())
        if power:
            factor = float((own * other).sum()) / power
            yield f"the multiplication by {factor:.6g}", _with("Mul", np.array(factor, dtype))
        offset = float((other - own).mean())
        yield f"the addition of {offset:.6g}", _with("Add", np.array(offset, dtype))


def _as_size(region: Region, step: int) -> str:
    """Name the first input's axis of that size, which no batch and no single step explains."""
    for name in _fed(region) if step > 1 else ():
        for axis, size in enumerate(region.feeds[name].shape):
            if axis and size == step:
                return f", the size of axis {axis} of {name}"
    return ""


def _fed(region: Region) -> list[str]:
    """Return the graph's inputs whose values are known at the place."""
    return [name for name in region.graph.inputs if name in region.feeds]


def _operands(region: Region, dtype: np.dtype) -> Iterator[tuple[str, Build]]:
    """Combine with operands of the original's operations: weights, masks, another branch."""
    if dtype.kind != "f":
        return
    words = {
        "Add": "the addition of",
        "Sub": "the subtraction of",
        "Mul": "the multiplication by",
        "Div": "the division by",
    }
    for name, array in region.weights.items():
        if array.dtype.kind == "f" and array.ndim <= len(region.expected.shape):
            for operator, word in words.items():
                yield (f"{word} the original's {name}", _with(operator, array.astype(dtype)))
    for name in region.read:
        values = region.feeds.get(name)
        if values is not None and values.dtype == dtype:
            for operator, word in words.items():
                yield f"{word} {name}", _with(operator, name)
                if 0 < values.ndim < (rank := len(region.expected.shape)):
                    wide = (*values.shape, *(1,) * (rank - values.ndim))
                    yield f"{word} {name}, with an additional axis", _wide(operator, name, wide)


def _changes(
    region: Region, shape: tuple[int, ...], dtype: np.dtype
) -> Iterator[tuple[str, Build]]:
    if dtype.kind == "i":
        sizes = {size for name in _fed(region) for size in region.feeds[name].shape[1:]}
        for step in dict.fromkeys((1, -1, 2, -2, *sorted(sizes), *(-size for size in sizes))):
            text = f"an offset of {step:+d}{_as_size(region, abs(step))}"
            yield text, _with("Add", np.array(step, dtype))
    if dtype.kind == "f":
        yield from _functions(len(shape))
        yield from _numbers(region, dtype, shape)
    if dtype.kind in "fiu":
        yield from _orders(shape)


def _functions(rank: int) -> Iterator[tuple[str, Build]]:
    for operator in _ACTIVATIONS:
        yield operator, f"{operator}(x)"
    for axis in range(-1, -rank - 1, -1):
        for operator in ("Softmax", "LogSoftmax"):
            yield f"{operator} over axis {axis}", f"{operator}(x, axis={axis})"
        for power in (2, 1):
            norm = f"LpNormalization(x, axis={axis}, p={power})"
            yield f"an L{power} normalization over axis {axis}", norm
    yield "1 minus it", "Sub(1.0, x)"
    yield "SiLU", "Mul(x, Sigmoid(x))"
    yield "GELU", GELU


def _numbers(
    region: Region, dtype: np.dtype, shape: tuple[int, ...]
) -> Iterator[tuple[str, Build]]:
    """Scale and shift by the original's numbers, or by the constants that normalize images."""
    numbers = [each for each in region.scalars() if each and math.isfinite(each)]
    likely = dict.fromkeys([*numbers, *(1 / each for each in numbers), 255.0, 1 / 255.0])
    for number in [*likely, *(shape[-1] ** power for power in (0.5, -0.5) if shape and shape[-1])]:
        if number != 1:
            yield f"the multiplication by {number:.6g}", _with("Mul", np.array(number, dtype))
    for number in dict.fromkeys(numbers):
        yield f"the addition of {number:.6g}", _with("Add", np.array(number, dtype))
        yield f"the subtraction of {number:.6g}", _with("Sub", np.array(number, dtype))
    for scale, shift in ((2.0, -1.0), (0.5, 0.5)):
        text = f"the multiplication by {scale} and the addition of {shift}"
        yield text, _affine(np.array(scale, dtype), np.array(shift, dtype))
    if len(shape) >= 3 and 3 in shape[-3:]:
        axis = [-3, -2, -1][shape[-3:].index(3)]
        mean = np.array(_IMAGENET_MEAN, dtype).reshape(3, *(1,) * (-axis - 1))
        std = np.array(_IMAGENET_STD, dtype).reshape(mean.shape)
        yield "ImageNet's normalization", _affine(1 / std, -mean / std)
        yield "the inverse of ImageNet's normalization", _affine(std, mean)


def _affine(scale: np.ndarray, shift: np.ndarray) -> Build:
    return lambda built, given: built.compute(
        "Add(Mul(given, scale), shift)",
        given=given,
        scale=built.constant("scale", scale),
        shift=built.constant("shift", shift),
    )


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[str, Build]]:
    """Reorder elements: permuted axes, a reversed axis, a shift by one, interleaved halves."""
    rank = len(shape)
    if 1 < rank <= 4:
        for axes in map(list, itertools.permutations(range(rank))):
            if axes != [*range(rank)]:
                yield f"a permutation of its axes to {axes}", f"Transpose(x, perm={axes})"
    for axis in range(rank):
        size = shape[axis]
        if size < 2:
            continue
        plain = np.arange(size)
        orders = {f"the order along axis {axis} reversed": plain[::-1]}
        for step in (1, -1):
            orders[f"a shift by {step} along axis {axis}"] = np.roll(plain, step)
        if axis == rank - 1 and size % 2 == 0 and size > 2:
            halves = plain.reshape(2, -1).T.ravel()
            orders["the order of halves, interleaved"] = halves
            orders["the order of pairs, as halves"] = np.argsort(halves)
        elif size <= _SHUFFLED:
            for groups in range(2, size // 2 + 1):
                if size % groups == 0:
                    description = f"the order of a shuffle of {groups} groups along axis {axis}"
                    orders[description] = plain.reshape(groups, -1).T.ravel()
        for text, order in orders.items():
            yield text, _gather(order, axis)


def _gather(order: np.ndarray, axis: int) -> Build:
    return lambda built, given: built.write(
        "Gather", given, built.constant("order", np.ascontiguousarray(order)), axis=axis
    )

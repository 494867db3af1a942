"""Candidate explanations that change what the graph stores: weights and tables of constants."""

import itertools
from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import reads
from convkit.worker.cause.matching.axis_layouts import layouts
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, copied, replaced, with_constants
from convkit.worker.cause.weights.fused_weights import derived_tensors

# Elements. Smaller constants are arguments, which are tried by other rewrites.
_TABLE = 5
# Weights of one node, and ways to assign the original's to them.
_MOST_WEIGHTS, _MOST_ORDERS = 4, 24


def weights(region: Region) -> Iterator[Rewrite]:
    """Replace the graph's weights by the original's, in every layout."""
    for name, values in region.constants():
        if values.dtype.kind != "f" or values.size < 2:
            continue
        for original, array in (*region.weights.items(), *_slices(region, values.shape)):
            if array.size != values.size:
                continue
            for layout in layouts(array.shape, values.shape):
                moved = layout.apply(array).astype(values.dtype)
                if np.array_equal(moved, values):
                    continue
                text = f"the weight {name} should hold the original's {original}"
                graph = with_constants(region.graph, {name: moved})
                yield Rewrite("weight", _reader(region, name), text, graph, name)
        for derived in derived_tensors(region.weights, {values.shape}):
            text = f"the weight {name} should hold {derived.original}"
            graph = with_constants(region.graph, {name: derived.values.astype(values.dtype)})
            yield Rewrite("weight", _reader(region, name), text, graph, name)


def _slices(region: Region, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the beginnings and ends of the original's weights along one axis, in a shape: an
    exporter stores the class token's position apart from those of the patches.
    """
    for original, array in region.weights.items():
        axes = [axis for axis, size in enumerate(shape) if array.shape[axis : axis + 1] != (size,)]
        if array.ndim != len(shape) or len(axes) != 1 or array.shape[axes[0]] < shape[axes[0]]:
            continue
        (axis,) = axes
        for start in (0, array.shape[axis] - shape[axis]):
            end = start + shape[axis]
            places = f"{start} to {end - 1}" if shape[axis] > 1 else f"{start}"
            part = np.take(array, range(start, end), axis)
            yield f"{original}, {places} along axis {axis}", part


def tables(region: Region) -> Iterator[Rewrite]:
    """Replace constants of whole numbers or booleans, such as masks that an exporter computed, by
    what the original computes without its inputs.
    """
    for name, values in region.constants():
        if values.dtype.kind not in "bi" or values.size < _TABLE:
            continue
        for operation in region.operations:
            for number in operation.outputs:
                array = region.inner[number]
                if array.size != values.size or array.dtype.kind != values.dtype.kind:
                    continue
                for layout in layouts(array.shape, values.shape):
                    moved = layout.apply(array).astype(values.dtype)
                    if np.array_equal(moved, values):
                        continue
                    off = int((moved != values).sum())
                    made = operation.kind.strip("_")
                    line = f" (at {operation.source})" if operation.source else ""
                    text = (
                        f"the constant {name} should hold the result of the original's"
                        f" {made}{line}: {off} of {values.size} elements differ"
                    )
                    graph = with_constants(region.graph, {name: moved})
                    yield Rewrite("constant", _reader(region, name), text, graph, name)


def own_weights(region: Region) -> Iterator[Rewrite]:
    """Give a node all weights of the original's operation at once: the gain and the shift of
    another layer's normalization. Other nodes keep theirs.
    """
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        places = [
            place
            for place, name in enumerate(node.input)
            if name in region.graph.constants and region.graph.constants[name].size > 1
        ]
        if not 2 <= len(places) <= _MOST_WEIGHTS or len(region.weights) < len(places):
            continue
        now = [region.graph.constants[node.input[place]] for place in places]
        for chosen in itertools.islice(
            itertools.permutations(region.weights.items(), len(places)), _MOST_ORDERS
        ):
            arrays = [array for _, array in chosen]
            if any(one.shape != other.shape for one, other in zip(arrays, now, strict=True)):
                continue
            copy = copied(node)
            given = {}
            for place, array, own in zip(places, arrays, now, strict=True):
                copy.input[place] = f"{node.output[0]}//weight{place}"
                given[copy.input[place]] = array.astype(own.dtype)
            held = [node.input[place] for place in places]
            wanted = [name for name, _ in chosen]
            text = f"its weights {' and '.join(held)} are not the original's"
            if held != wanted:
                text += f" {' and '.join(wanted)}"
            graph = with_constants(replaced(region.graph, index, copy), given)
            yield Rewrite("weight", node.output[0], text, graph, held[0])


def _reader(region: Region, constant: str) -> str:
    nodes = [region.graph.nodes[index] for index in region.nodes]
    return str(next(node.output[0] for node in nodes if constant in reads(node)))

"""Whether the runtime's kernels are off at a place or a value overflows, and not the graph."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from convkit.worker.cause.graphs.float64_graph import moving_nodes, run_in_float64
from convkit.worker.cause.graphs.runnable_graph import PieceFailedError, label
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.place.equal_forms import working_form
from convkit.worker.cause.place.other_wording import other_wording
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Cause

# Nodes. The evaluator is slow, and a larger place is a part of the model.
_MOST = 60
# What the graph in float64 may leave of the error: the original was computed in float32.
_REMAINS = 0.1
# What ends the names of a node's values in float64.
_IN_DOUBLE = "_in_float64"
# What a node must be off by alone, in parts of the place's error, to be all that is off there.
_ALONE = 0.5


def blamed_on_kernels(cause: Cause, region: Region) -> Cause:
    """Return an unexplained place's cause, and say so if the graph is right there: in float64, by
    onnx's own evaluator, its nodes agree with the original. Of several nodes, the one that is off
    by itself is named; nodes that compute with sizes alone take no part. A node that overflows is
    named as such.
    """
    moving = _moving(region)
    values = _in_float64(region, moving)
    if values is None:
        return cause
    if not _agrees(region, values):
        return _with_first_nan(cause, region, moving)
    now = region.error(region.graph)
    if (overflowing := _overflowing(region, moving, values)) is not None:
        node = region.graph.nodes[overflowing]
        text = (
            f"{node.op_type} {label(node)} overflows its type: in float64 its results are finite,"
            " and the nodes after it agree with the original"
        )
        return dataclasses.replace(cause, text=text, node=label(node), tensor=node.output[0])
    alone = [index for index in moving if _error_alone(region, index, values) >= _ALONE * now]
    blamed = alone if len(alone) == 1 else moving
    node = region.graph.nodes[blamed[-1]]
    count, where = len(blamed), f"{node.op_type} {label(node)}"
    off = f"kernels are off in the {count} nodes that end at" if count > 1 else "kernel is off in"
    text = (
        f"{release()}'s {off} {where}, and the graph is right: computed in float64, it agrees"
        " with the original"
    )
    known = {**values, **region.feeds}
    is_last = region.target in node.output
    instead = other_wording(node, known.get(node.input[0]), region.expected) if is_last else None
    if instead is None and count == 1:
        instead = _other_form(region, node)
    return dataclasses.replace(cause, text=text, node=label(node), of_kernels=True, instead=instead)


def agrees_in_float64(region: Region) -> bool:
    """Return whether the graph is right at a place: its nodes in float64 agree with the original,
    by far better than in their own types.
    """
    values = _in_float64(region, _moving(region))
    return values is not None and _agrees(region, values)


def _moving(region: Region) -> list[int]:
    """Return the place's nodes that depend on values, not on sizes alone."""
    taking_part = moving_nodes(region.graph, region.feeds)
    return [index for index in region.nodes if id(region.graph.nodes[index]) in taking_part]


def _in_float64(region: Region, moving: Sequence[int]) -> dict[str, np.ndarray] | None:
    """Return what nodes compute in float64; None if the place is too large, or is not computed."""
    if len(region.nodes) > _MOST:
        return None
    names = [name for index in moving for name in region.graph.nodes[index].output if name]
    try:
        values = run_in_float64(region.graph, names, region.feeds)
    except PieceFailedError:
        return None
    exact = values.get(region.target)
    return values if exact is not None and exact.shape == region.expected.shape else None


def _agrees(region: Region, values: Mapping[str, np.ndarray]) -> bool:
    after = relative_error(values[region.target], region.expected)
    return math.isfinite(after) and after <= _REMAINS * region.error(region.graph)


def _other_form(region: Region, node: onnx.NodeProto) -> str | None:
    """Return another form of a node that the runtime computes right."""
    limit = _REMAINS * region.error(region.graph)
    try:
        own = region.graph.run([name for name in (*node.input, *node.output) if name], region.feeds)
    except PieceFailedError:
        return None
    form = working_form(region.graph, node, own, lambda made: region.error(made) <= limit)
    return None if form is None else form.text


def _overflowing(
    region: Region, moving: Sequence[int], values: Mapping[str, np.ndarray]
) -> int | None:
    """Return the first node with an infinite result, or NaN, that is a number in float64; None if
    there is none.
    """
    names = [name for index in moving for name in region.graph.nodes[index].output if name]
    try:
        found = region.graph.run(names, region.feeds)
    except PieceFailedError:
        return None
    for index in moving:
        for name in region.graph.nodes[index].output:
            exact, own = values.get(name), found.get(name)
            if exact is None or own is None or exact.shape != own.shape or own.dtype.kind != "f":
                continue
            if (np.isfinite(exact) & ~np.isfinite(own)).any():
                return index
    return None


def _with_first_nan(cause: Cause, region: Region, moving: Sequence[int]) -> Cause:
    """Return the cause with the first node that makes NaN of numbers, if the place computes any
    that the original does not.
    """
    graph, known = region.graph, region.feeds
    found = region.computed(graph)
    if found is None or not np.isnan(found).any() or np.isnan(region.expected).any():
        return cause
    names = [name for index in moving for name in graph.nodes[index].output if name]
    try:
        values = {**known, **graph.run(names, known)}
    except PieceFailedError:
        return cause
    bad = {n for n, each in values.items() if each.dtype.kind == "f" and np.isnan(each).any()}
    for index in moving:
        node = graph.nodes[index]
        if bad.intersection(node.output) and not bad.intersection(node.input):
            text = f"{cause.text}; the first NaN is in {node.op_type} {label(node)}"
            return dataclasses.replace(cause, text=text)
    return cause


def _error_alone(region: Region, index: int, values: Mapping[str, np.ndarray]) -> float:
    """Return how far a node's results are off, computed from right values; infinity if the runtime
    does not compute it.
    """
    graph = region.graph
    right = {
        name: array.astype(np.float32) if array.dtype == np.float64 else array
        for name, array in values.items()
    }
    own = [name for name in graph.nodes[index].output if name in right]
    given = {**region.feeds, **{name: array for name, array in right.items() if name not in own}}
    try:
        found = graph.run(own, given)
    except PieceFailedError:
        return np.inf
    return max((relative_error(found[name], values[name]) for name in own), default=0.0)


def release() -> str:
    """Return the name and release of what runs graphs here."""
    import onnxruntime

    return f"onnxruntime {onnxruntime.__version__}"

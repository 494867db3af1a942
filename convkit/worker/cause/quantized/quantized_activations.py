"""Causes in a graph's quantized activations: a range that does not fit the values, or the rounding
itself.

A graph whose activations pass through integers is run without rounding and clipping there. That
gives the values that the ranges should hold, and a graph in which other faults can be searched for.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    label,
    module_of,
)
from convkit.worker.cause.quantized.quantized_weight import constant, is_computed
from convkit.worker.cause.search_types.search_results import Cause, Kind
from convkit.worker.graph.operators.node_builder import INSIDE, NodeBuilder

# A wrong range leaves the outputs at most this much of the error once it is corrected.
_CHANGES = 0.8
# Of the values' rms: what clipping may cost, and the step of a range that is too wide.
_CLIPPED, _COARSE = 0.05, 0.25
# How many times wider than its values a range is if it is too wide.
_WIDE = 4.0
# How many times larger than the others' a channel is that takes the range for itself.
_OUTLIER = 8.0
_TRIED = 48
_LEVELS = {
    np.dtype(kind): (np.iinfo(kind).min, np.iinfo(kind).max)
    for kind in (np.uint8, np.int8, np.uint16, np.int16)
}


@dataclasses.dataclass(frozen=True)
class Quantizer:
    """A node that makes integers of an activation, and those that make floats of them again."""

    node: onnx.NodeProto
    readers: tuple[int, ...]

    @property
    def value(self) -> str:
        """The activation before it is rounded."""
        return str(self.node.input[0])

    @property
    def is_dynamic(self) -> bool:
        """Whether the range is that of each call's own values."""
        return self.node.op_type == "DynamicQuantizeLinear"


def quantizers(graph: Graph) -> list[Quantizer]:
    """Return the quantizers whose integers become floats again at once, whoever reads them."""
    found = []
    for node in graph.nodes:
        if node.op_type not in ("QuantizeLinear", "DynamicQuantizeLinear"):
            continue
        readers = graph.readers.get(node.output[0], [])
        usable = ("DequantizeLinear", "Cast") if node.op_type[0] == "D" else ("DequantizeLinear",)
        back = all(
            graph.nodes[index].op_type in usable
            and graph.nodes[index].input[0] == node.output[0]
            and not is_computed(graph, node, 2)
            for index in readers
        )
        if readers and back and node.output[0] not in graph.outputs:
            found.append(Quantizer(node, tuple(readers)))
    return found


def unrounded(graph: Graph, which: Sequence[Quantizer]) -> Graph:
    """Return the graph in which these activations are neither rounded nor clipped.

    A range that begins at zero may replace a ReLU, which quantizers then leave out.
    """
    nodes: dict[int, list[onnx.NodeProto]] = {}
    for quantizer in which:
        for index in quantizer.readers:
            made = graph.nodes[index].output[0]
            if graph.nodes[index].op_type == "Cast":
                nodes[index] = _scaled(quantizer, made)
            else:
                same = "Relu" if _begins_at_zero(graph, quantizer) else "Identity"
                nodes[index] = [helper.make_node(same, [quantizer.value], [made])]
    every = [nodes.get(index, [node]) for index, node in enumerate(graph.nodes)]
    return graph.with_nodes([node for group in every for node in group])


def _begins_at_zero(graph: Graph, quantizer: Quantizer) -> bool:
    """Say whether a constant range holds no number below zero."""
    zero = None if quantizer.is_dynamic else _numbers(graph, quantizer.node)[1]
    return zero is not None and zero.size == 1 and zero.flat[0] == _LEVELS.get(zero.dtype, (0,))[0]


def _scaled(quantizer: Quantizer, made: str) -> list[onnx.NodeProto]:
    """Return nodes for what would be integers, had they not been rounded: x / scale + zero."""
    _, scale, zero = quantizer.node.output
    builder = NodeBuilder(made)
    builder.compute(
        "Add(Div(x, scale), Cast(zero, to=1))", x=quantizer.value, scale=scale, zero=zero
    )
    return builder.nodes


def wrong_ranges(
    graph: Graph,
    found: Sequence[Quantizer],
    feeds: Values,
    error: float,
    error_of: Callable[[Graph], float],
) -> list[Cause]:
    """Return the activations whose range does not fit their values, the costliest first.

    `error` is that of the outputs, `error_of` computes another graph's.
    """
    try:
        free = unrounded(graph, found)
        held = {each.value: _held(graph, each) for each in found}
        run = free.run(list(held.values()), feeds)
    except PieceFailedError:
        return []
    values = {value: run[name] for value, name in held.items()}
    suspects = [
        (quantizer, problem)
        for quantizer in found
        if np.isfinite(values[quantizer.value]).all()
        and values[quantizer.value].size
        and (problem := _problem(graph, quantizer, values[quantizer.value])) is not None
    ]
    causes = []
    for quantizer, (kind, text) in suspects[:_TRIED]:
        after = error_of(unrounded(graph, [quantizer]))
        if after < error * _CHANGES:
            node = quantizer.node
            what = f"{node.op_type} {label(node)} does not fit the activation {quantizer.value}"
            causes.append(
                Cause(
                    kind,
                    f"{what}: {text}",
                    node=label(node),
                    tensor=quantizer.value,
                    module=module_of(node),
                    before=error,
                    after=after,
                )
            )
    return sorted(causes, key=lambda cause: cause.after)


def _held(graph: Graph, quantizer: Quantizer) -> str:
    """Return the name of the values that a quantizer's range must hold."""
    reader = graph.nodes[quantizer.readers[0]]
    return quantizer.value if quantizer.is_dynamic else str(reader.output[0])


def _problem(graph: Graph, quantizer: Quantizer, values: np.ndarray) -> tuple[Kind, str] | None:
    """Describe what is wrong with a quantizer's range for these values; None if nothing is."""
    wrong = None if quantizer.is_dynamic else _wrong(graph, quantizer, values)
    if wrong is not None:
        return "quantized", wrong
    outlier = _outlier(values)
    return None if outlier is None else ("rounding", outlier)


def _wrong(graph: Graph, quantizer: Quantizer, values: np.ndarray) -> str | None:
    """Describe a constant range that is read otherwise, or does not fit the values."""
    scale, zero = _numbers(graph, quantizer.node)
    if scale is None or zero is None or scale.size != 1 or zero.dtype not in _LEVELS:
        return None
    for index in quantizer.readers:
        if (other := _read_otherwise(graph, graph.nodes[index], scale, zero)) is not None:
            return other
    least, most = _LEVELS[zero.dtype]
    step = float(scale.flat[0])
    low, high = step * (least - float(zero.flat[0])), step * (most - float(zero.flat[0]))
    return _misfit(values, low, high, step)


def _numbers(graph: Graph, node: onnx.NodeProto) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return a node's scale and zero point; None for one that is computed."""
    scale, zero = constant(graph, node, 1), constant(graph, node, 2)
    if zero is None and not is_computed(graph, node, 2):
        zero = np.zeros(1, np.uint8)
    return scale, zero


def _read_otherwise(
    graph: Graph, reader: onnx.NodeProto, scale: np.ndarray, zero: np.ndarray
) -> str | None:
    """Describe other numbers with which the integers are made floats again."""
    read, base = _numbers(graph, reader)
    # The node that an operator's own reading was lowered to is named after that operator's result.
    name = label(reader).partition(f"{INSIDE}of ")[0]
    if read is None or base is None or read.size != 1 or base.size != 1:
        return None
    if read != scale:
        own, other = f"{scale.flat[0]:.6g}", f"{read.flat[0]:.6g}"
        return f"its scale is {own}, and {name} reads it with {other}"
    if base != zero:
        return f"its zero point is {zero.flat[0]}, and {name} reads it with {base.flat[0]}"
    return None


def _misfit(values: np.ndarray, low: float, high: float, step: float) -> str | None:
    """Describe a range that clips values, or that is much wider than they are."""
    numbers = values.astype(np.float64)
    rms = float(np.sqrt((numbers**2).mean()))
    lost = numbers - numbers.clip(low, high)
    span = f"{numbers.min():.3g} to {numbers.max():.3g}"
    if np.sqrt((lost**2).mean()) > _CLIPPED * rms:
        share = float((np.abs(lost) > step).mean())
        return f"it holds {low:.3g} to {high:.3g} and clips {share:.1%} of values from {span}"
    wide = high - low > _WIDE * (max(numbers.max(), 0.0) - min(numbers.min(), 0.0))
    if wide and step > _COARSE * rms:
        return f"it holds {low:.3g} to {high:.3g}, in steps of {step:.3g}, for values from {span}"
    return None


def _outlier(values: np.ndarray) -> str | None:
    """Describe one channel beside whose values the others are too small for the common step."""
    for axis in {values.ndim - 1, 1} if values.ndim > 1 else set():
        others = tuple(each for each in range(values.ndim) if each != axis)
        largest = np.abs(values).max(axis=others)
        usual, channel = float(np.median(largest)), int(largest.argmax())
        if largest.size > 2 and usual > 0 and largest[channel] > _OUTLIER * usual:
            return (
                f"one scale serves all channels, and channel {channel} of {largest.size} (axis"
                f" {axis}) reaches {largest[channel]:.3g}, the others at most {usual:.3g} (median)"
            )
    return None

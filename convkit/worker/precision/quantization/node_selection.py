"""Selects the nodes of a graph to quantize, among those that can be."""

import dataclasses
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from convkit.protocol.messages import Quantization, QuantizationKind
from convkit.protocol.module_patterns import UnmatchedPattern, matches, unmatched_patterns
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.quantization.preparation import (
    is_plain_gemm,
    transposed_weight,
    weight,
)

# Operators with weights, and the input that is the weight. Dynamic quantization leaves out
# convolutions: their integer kernels are slower than float32's, and static quantization suits them.
_WEIGHTED: dict[QuantizationKind, dict[str, int]] = {
    "dynamic-int8": {"MatMul": 1, "Gemm": 1, "Gather": 0, "LSTM": 1},
    "static-int8": {"MatMul": 1, "Gemm": 1, "Gather": 0, "Conv": 1, "ConvTranspose": 1},
    "int4-weights": {"MatMul": 1, "Gemm": 1},
}
# Operators between convolutions that keep their input's range: in int8, they save two conversions
# at no cost. Sums, products, softmax and normalizations stay in float32: 8 bits are too few for a
# residual stream, a mask or a variance.
_BETWEEN = frozenset({"AveragePool", "Clip", "GlobalAveragePool", "MaxPool", "Relu"})

# Operators that work on integers only, once a runtime has fused them with their neighbors.
INTEGER_TO_INTEGER = _BETWEEN | {"Conv", "ConvTranspose"}

# Larger magnitudes belong to a mask or are infinite: with steps of 1/255 of them, other values
# vanish.
UNUSABLE_MAGNITUDE = 1e6


@dataclasses.dataclass(frozen=True)
class Selected:
    """One node to quantize, and its module (empty for the root)."""

    node: ir.Node
    module: str


@dataclasses.dataclass(frozen=True)
class Selection:
    """The nodes to quantize, the number of candidates, and the patterns that match no module of the
    graph.

    `between` are nodes without weights that stay in integers if their input is one.
    """

    chosen: tuple[Selected, ...]
    between: tuple[ir.Node, ...]
    possible: int
    unmatched: tuple[UnmatchedPattern, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of the chosen nodes, without duplicates, in graph order."""
        return tuple(dict.fromkeys(selected.module for selected in self.chosen))


def quantized_operators(kind: QuantizationKind) -> list[str]:
    """Return the operators that a kind of quantization applies to, sorted."""
    between = _BETWEEN if kind == "static-int8" else frozenset()
    return sorted(between | set(_WEIGHTED[kind]))


def select(model: ir.Model, quantization: Quantization) -> Selection:
    """Choose the nodes of a prepared model to quantize: all candidates except those in modules that
    stay in float32.

    Raises PatternError.
    """

    def kept(module: str) -> bool:
        return any(matches(pattern, module) for pattern in quantization.patterns)

    possible = list(_possible(model, quantization.quantize))
    chosen = tuple(one for one in possible if not kept(one.module))
    if quantization.quantize == "static-int8" and quantization.per_channel:
        chosen = tuple(_without_shared_tables(chosen))
    between = tuple(
        node
        for node, module in nodes_with_modules(model)
        if quantization.quantize == "static-int8" and node.op_type in _BETWEEN and not kept(module)
    )
    paths = {path for _, path in nodes_with_modules(model)}
    unmatched = unmatched_patterns(quantization.patterns, paths)
    return Selection(chosen, between, len(possible), unmatched)


def _without_shared_tables(chosen: Sequence[Selected]) -> Iterator[Selected]:
    """Yield all but the tables that products share, whose scales are along their channels: a row
    of the table would get them as its own. It is still stored in integers.
    """
    for one in chosen:
        table = one.node.inputs[0]
        uses = table.uses() if table is not None else ()
        if one.node.op_type != "Gather" or all(use.node.op_type == "Gather" for use in uses):
            yield one


def _possible(model: ir.Model, kind: QuantizationKind) -> Iterator[Selected]:
    weighted = _WEIGHTED[kind]
    for node, module in nodes_with_modules(model):
        # Calibration measures no tensor inside the bodies of If, Loop and Scan.
        reached = kind != "static-int8" or node.graph is model.graph
        if reached and node.domain == "" and node.op_type in weighted:
            index = weighted[node.op_type]
            value = node.inputs[index] if len(node.inputs) > index else None
            if _fits(node, value, kind):
                yield Selected(node, module)


def _fits(node: ir.Node, value: ir.Value | None, kind: QuantizationKind) -> bool:
    tensor = weight(value)
    if tensor is None and node.op_type == "MatMul":
        tensor = transposed_weight(value)
    if tensor is None:
        return False
    match node.op_type:
        case "MatMul":
            return len(tensor.shape) == 2
        case "Gemm":
            return kind == "static-int8" or is_plain_gemm(node)
        case "Gather":
            return len(tensor.shape) >= 2  # a table of rows; a table of scalars is not worth it
        case _:
            return True

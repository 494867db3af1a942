"""How a graph uses each of its inputs: as an index, in comparisons, or as a factor."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.graph_traversal import attribute_graphs, constant_tensor

# Operators whose result has the values of their first input, in another layout or type.
_CARRIERS = frozenset(
    {
        *("Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand"),
        *("Slice", "Pad", "Tile", "Split", "Gather", "Concat", "QuantizeLinear"),
        *("DequantizeLinear", "Clip"),
        *("StringNormalizer", "Tokenizer", "StringSplit", "ArrayFeatureExtractor"),
        *("Imputer", "FeatureVectorizer"),
    }
)
_COMPARISONS = frozenset({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
# Operators for which whole numbers are indices, and the slots of the table and the index.
_LOOKUPS = {"Gather": (0, 1), "GatherElements": (0, 1), "GatherND": (0, 1), "OneHot": (1, 0)}
# Operators that restore a table that is stored in few bits.
_ELEMENTWISE = frozenset({"DequantizeLinear", "Cast", "Mul", "Add", "Sub", "Identity"})
# The attributes with the texts, and the whole numbers, that an operator knows.
_VOCABULARIES = ("cats_strings", "keys_strings", "pool_strings")
_CATEGORIES = ("cats_int64s", "keys_int64s")
# Features are drawn this many standard deviations around their mean.
_DEVIATIONS = 2
# A larger constant is a weight, with which nothing is compared or scaled.
_SMALL = 64
# A flat input of at least this many times a convolution's channels consists of frames.
_FRAMES = 4
# The largest number of classes of one-hot vectors.
_LARGEST_COUNT = 1 << 20


_LOW_TYPES: dict[ir.DataType | None, DType] = {
    ir.DataType.FLOAT16: "float16",
    ir.DataType.BFLOAT16: "bfloat16",
}
_ROUNDING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})


def rounds_activations(graph: ir.Graph) -> bool:
    """Return True if a graph rounds intermediate results to integers."""
    return any(node.op_type in _ROUNDING for node in graph.all_nodes())


def low_types(graph: ir.Graph) -> tuple[DType, ...]:
    """Return the types of low precision in which a graph computes. Weights that are only stored in
    one, and cast before they are used, do not count.
    """
    found = {
        _LOW_TYPES[value.dtype]
        for node in graph.all_nodes()
        if node.op_type not in ("Cast", "CastLike", "Constant", "Identity")
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.dtype in _LOW_TYPES
    }
    found |= {
        _LOW_TYPES[kind]
        for node in graph.all_nodes()
        if node.op_type == "Cast" and (kind := _cast_to(node)) in _LOW_TYPES
        for reader, _ in node.outputs[0].uses()
        if reader.op_type != "Cast"
    }
    return tuple(sorted(found))


def _cast_to(node: ir.Node) -> ir.DataType | None:
    attribute = node.attributes.get("to")
    return ir.DataType(attribute.as_int()) if attribute is not None else None


def table_rows(graph: ir.Graph) -> set[int]:
    """Return the rows of each stored table that a graph looks something up in."""
    found = set()
    for node in graph.all_nodes():
        slots = _LOOKUPS.get(node.op_type)
        table = node.inputs[slots[0]] if slots is not None and node.op_type != "OneHot" else None
        if table is not None and (table.const_value is not None or _is_restored(table)):
            found |= {_rows_of(node, table)}
    return {rows for rows in found if rows is not None}


def _rows_of(node: ir.Node, table: ir.Value) -> int | None:
    """Return how many rows a lookup's table has, along the lookup's axis."""
    axis = node.attributes.get("axis")
    return _size(table, axis.as_int() if axis is not None else 0)


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a graph does with an input.

    `rows`: how many rows the smallest table has that it is an index of. `compared`: constants that
    it is compared with. `factors`, `offsets`: constants that it is multiplied by, and that are
    added to it or taken from it, before anything else. `sizes`: by axis, the only size that its
    first operator takes. `readers`: the operators that read it, layouts and types aside. `window`:
    the successive elements that a convolution over one axis looks at, as one over sound does: of
    one channel, or of a flat input cut into frames. `strings`: the texts that it is looked up
    among; `categories`: the whole numbers. `features`: the lowest and highest value at which trees
    split on it, or that a scaler's means and deviations suggest.
    """

    rows: int | None = None
    compared: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()
    sizes: dict[int, int] = dataclasses.field(default_factory=dict)
    readers: frozenset[str] = frozenset()
    window: int = 0
    strings: tuple[str, ...] = ()
    categories: tuple[int, ...] = ()
    features: tuple[float, float] | None = None


def usage_of(value: ir.Value) -> Usage:
    """Return how a graph's input is used, in the bodies of If, Loop and Scan too."""
    rows: list[int] = []
    compared: set[float] = set()
    factors: list[float] = []
    offsets: list[float] = []
    readers: set[str] = set()
    window = 0
    strings: set[str] = set()
    categories: set[int] = set()
    features: list[float] = []
    for node, index in _uses(value):
        readers.add(node.op_type)
        table = _table_rows(node, index)
        if table is not None:
            rows.append(table)
        window = max(window, _window(node, index, value))
        strings.update(_vocabulary(node))
        categories.update(_categories(node))
        features += [*_splits(node), *_scaled(node)]
        others = [other for place, other in enumerate(node.inputs) if place != index and other]
        constants = [number for other in others for number in _small_constant(other)]
        if node.op_type == "Equal":
            rows += [count for other in others if (count := _counted(other)) is not None]
        match node.op_type:
            case name if name in _COMPARISONS:
                compared.update(constants)
            case "Mul":
                factors += constants
            case "Div" if index == 0:
                factors += [1 / number for number in constants if number]
            case "Add":
                offsets += constants
            case "Sub":
                offsets += [-number for number in constants]
    return Usage(
        min(rows, default=None),
        tuple(sorted(compared)),
        tuple(factors),
        tuple(offsets),
        _required_sizes(value),
        frozenset(readers),
        window,
        tuple(sorted(strings)),
        tuple(sorted(categories)),
        (min(features), max(features)) if features else None,
    )


def _uses(value: ir.Value) -> Iterator[tuple[ir.Node, int]]:
    """Walk the uses of a value's contents: the readers of it, or of another layout of it, which a
    branch of an If may choose.
    """
    chosen = _chosen_by_ifs(value.graph) if value.graph is not None else {}
    seen = {value}
    pending = [value]
    while pending:
        carrier = pending.pop()
        if carrier in chosen and chosen[carrier] not in seen:
            seen.add(chosen[carrier])
            pending.append(chosen[carrier])
        for node, index in carrier.uses():
            carried = node.op_type in _CARRIERS and (
                index == 0 or node.op_type in ("Concat", "FeatureVectorizer")
            )
            if not carried:
                yield node, index
                continue
            for output in node.outputs:
                if output not in seen:
                    seen.add(output)
                    pending.append(output)


def _chosen_by_ifs(graph: ir.Graph) -> dict[ir.Value, ir.Value]:
    """Return the output of each If by the results of its branches."""
    return {
        result: output
        for node in graph.all_nodes()
        if node.op_type == "If"
        for attribute in node.attributes.values()
        for branch in attribute_graphs(attribute)
        for result, output in zip(branch.outputs, node.outputs, strict=True)
    }


def _vocabulary(node: ir.Node) -> list[str]:
    """Return the texts that a node looks its input up among."""
    for name in _VOCABULARIES:
        if (attribute := node.attributes.get(name)) is not None:
            return list(attribute.as_strings())
    return []


def _categories(node: ir.Node) -> list[int]:
    """Return the whole numbers that a node looks its input up among."""
    for name in _CATEGORIES:
        if (attribute := node.attributes.get(name)) is not None:
            return list(attribute.as_ints())
    return []


def _scaled(node: ir.Node) -> list[float]:
    """Return usual values of the features that a node brings to a mean of 0 and a deviation of
    1: it subtracts each feature's offset and multiplies by its scale.
    """
    offset, scale = (node.attributes.get(name) for name in ("offset", "scale"))
    if (node.domain, node.op_type) != ("ai.onnx.ml", "Scaler") or offset is None or scale is None:
        return []
    means, scales = offset.as_floats(), scale.as_floats()
    count = max(len(means), len(scales))  # one number may count for all features
    means, scales = (
        list(each) * count if len(each) == 1 else list(each) for each in (means, scales)
    )
    pairs = zip(means, scales, strict=False)
    spans = ((mean, _DEVIATIONS / abs(factor)) for mean, factor in pairs if factor)
    return [end for mean, span in spans for end in (mean - span, mean + span)]


def _splits(node: ir.Node) -> list[float]:
    """Return the values at which a node's decision trees split."""
    modes, values = (node.attributes.get(name) for name in ("nodes_modes", "nodes_values"))
    if node.domain != "ai.onnx.ml" or modes is None or values is None:
        return []
    pairs = zip(modes.as_strings(), values.as_floats(), strict=True)
    return [value for mode, value in pairs if mode != "LEAF"]


def _table_rows(node: ir.Node, index: int) -> int | None:
    """Return the rows of the constant table that a node looks a value up in."""
    if node.op_type == "EmbedLayerNormalization" and index in (0, 1):
        table = node.inputs[index + 2]
        return _size(table, 0) if table is not None else None
    slots = _LOOKUPS.get(node.op_type)
    if slots is None or slots[1] != index:
        return None
    table = node.inputs[slots[0]]
    if table is None:
        return None
    if node.op_type == "OneHot":
        depth = _small_constant(table)
        return int(depth[0]) if len(depth) == 1 and depth[0] >= 1 else None
    return _rows_of(node, table)


def _size(value: ir.Value, axis: int) -> int | None:
    shape = _stored_shape(value)
    # A table of few bytes that is a shape's or a permutation's is not an embedding.
    if not shape:
        return None
    size = shape[axis]
    return size if size > 1 else None


def _is_restored(table: ir.Value) -> bool:
    """Return True for a table that is computed from what is stored in few bits."""
    node = table.producer()
    return node is not None and node.op_type in _ELEMENTWISE


def _stored_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Return the shape of a constant, or of what is computed from constants alone, element by
    element, as quantized tables are.
    """
    tensor = constant_tensor(value)
    if tensor is not None:
        return tuple(int(size) for size in tensor.shape.numpy())
    node = value.producer()
    if node is None or not _is_restored(value):
        return None
    shapes = [_stored_shape(each) for each in node.inputs if each is not None]
    known = [shape for shape in shapes if shape is not None]
    return max(known, key=math.prod) if len(known) == len(shapes) else None


def _window(node: ir.Node, index: int, value: ir.Value) -> int:
    """Return how many successive elements of an input a convolution over a single axis looks at.

    Its channels are successive elements too if the input is flat and has several times as many: it
    was cut into frames. One vector of features has as many elements as the convolution channels.
    """
    if node.op_type != "Conv" or index != 0 or node.inputs[1] is None:
        return 0
    shape = _weight_shape(node.inputs[1]) or ()
    if len(shape) != 3:
        return 0
    channels, reach = shape[1:]
    if channels == 1:
        return reach
    length = value.shape[-1] if value.shape is not None and 1 <= len(value.shape) <= 2 else 0
    return channels * reach if isinstance(length, int) and length >= _FRAMES * channels else 0


def _counted(value: ir.Value) -> int | None:
    """Return n if a value contains 0, 1, ... n - 1: comparing with it produces one-hot vectors."""
    tensor = _tensor_behind(value)
    if tensor is None or not 2 < tensor.size <= _LARGEST_COUNT:
        return None
    numbers = np.asarray(tensor.numpy()).reshape(-1)
    return len(numbers) if np.array_equal(numbers, np.arange(len(numbers))) else None


def _tensor_behind(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the constant behind a value in another layout or type."""
    for _ in range(8):
        producer = value.producer()
        if (tensor := constant_tensor(value)) is not None:
            return tensor
        if producer is None or producer.op_type not in _CARRIERS or producer.inputs[0] is None:
            return None
        value = producer.inputs[0]
    return None


def _small_constant(value: ir.Value) -> list[float]:
    tensor = _tensor_behind(value)
    if tensor is None or tensor.size > _SMALL or tensor.dtype == ir.DataType.STRING:
        return []
    numbers = np.asarray(tensor.numpy()).reshape(-1)
    return [float(number) for number in numbers] if numbers.dtype.kind in "biuf" else []


def _required_sizes(value: ir.Value) -> dict[int, int]:
    """Return the axis sizes required by the operators that read an input directly."""
    sizes: dict[int, int] = {}
    for node, index in value.uses():
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if index != 0 or weight is None or (shape := _weight_shape(weight)) is None:
            continue
        match node.op_type:
            case "Conv" if len(shape) > 1:
                group = node.attributes.get("group")
                sizes[1] = shape[1] * (group.as_int() if group is not None else 1)
            case "ConvTranspose":
                sizes[1] = shape[0]
            case "LSTM" | "GRU" | "RNN":
                sizes[2] = shape[2]
            case "MatMul" if len(shape) >= 2 and value.shape is not None:
                sizes[len(value.shape) - 1] = shape[-2]
            case "Gemm" if not _is_set(node, "transA"):
                sizes[1] = shape[1 if _is_set(node, "transB") else 0]
    return sizes


def _weight_shape(value: ir.Value) -> Sequence[int] | None:
    tensor = constant_tensor(value)
    return tuple(int(size) for size in tensor.shape.numpy()) if tensor is not None else None


def _is_set(node: ir.Node, name: str) -> bool:
    attribute = node.attributes.get(name)
    return attribute is not None and bool(attribute.as_int())

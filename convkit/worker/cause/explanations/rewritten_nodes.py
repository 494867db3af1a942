"""Candidate explanations that change parts of the graph: attributes, operators, wiring."""

import itertools
from collections.abc import Iterator

import numpy as np
import onnx

from convkit.worker.cause.explanations.wrong_numbers import fit
from convkit.worker.cause.graphs.runnable_graph import Graph, label
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region, RegionEdge
from convkit.worker.cause.search_types.graph_edits import (
    Rewrite,
    copied,
    replaced,
    rewired,
    with_attribute,
)
from convkit.worker.graph.operators.node_builder import INSIDE

# Nodes that can make one step of a preparation, such as a division by the largest magnitude.
_ONE_STEP = 6
# Their results depend on the shape of what they read, not on its values.
_SHAPE_ONLY = ("Shape", "Size", "EyeLike", "RandomUniformLike", "RandomNormalLike")
# Operators that are commonly confused: each is tried instead of the others.
FAMILIES: tuple[tuple[str, ...], ...] = (
    (
        *("Relu", "Sigmoid", "Tanh", "Erf", "HardSigmoid", "HardSwish", "Softplus", "Softsign"),
        *("Elu", "Selu", "Celu", "LeakyRelu", "Gelu", "Mish", "Exp", "Log", "Sqrt", "Reciprocal"),
        *("Neg", "Abs", "Sin", "Cos", "Tan", "Floor", "Ceil", "Round", "Sign", "Identity"),
    ),
    ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod"),
    ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"),
    ("And", "Or", "Xor"),
    ("Softmax", "LogSoftmax", "Hardmax"),
    ("MaxPool", "AveragePool", "LpPool"),
    ("GlobalAveragePool", "GlobalMaxPool"),
    ("FastGelu", "BiasGelu", "Gelu", "QuickGelu"),
    ("ArgMax", "ArgMin"),
    tuple(
        f"Reduce{kind}"
        for kind in ("Mean", "Sum", "Max", "Min", "L1", "L2", "Prod", "SumSquare", "LogSumExp")
    ),
)

# The possible values of string attributes.
_WORDS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "coordinate_transformation_mode": (
        *("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
        *("half_pixel_symmetric", "tf_crop_and_resize"),
    ),
    "nearest_mode": ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    "mode": (
        *("nearest", "linear", "cubic", "bilinear", "bicubic", "constant", "reflect", "edge"),
        *("wrap", "DCR", "CRD"),
    ),
    "padding_mode": ("zeros", "border", "reflection"),
    "direction": ("forward", "reverse", "LEFT", "RIGHT"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "reduction": ("none", "add", "mul", "max", "min"),
}
_FLOATS: dict[str, tuple[float, ...]] = {
    "epsilon": (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2, 0.0),
    "cubic_coeff_a": (-0.75, -0.5),
    "alpha": (1.0, 0.01, 0.2, 0.1, 0.5, 1.702, 0.0, -1.0),
    "beta": (1.0, 0.5, 0.0, -1.0),
}
_FLAGS = (
    *("ceil_mode", "count_include_pad", "keepdims", "exclusive", "reverse", "transA", "transB"),
    *("align_corners", "noop_with_empty_axes", "upper", "fmod", "largest", "sorted"),
    *("linear_before_reset", "antialias", "exclude_outside", "select_last_index", "interleaved"),
    *("is_causal", "allowzero", "layout", "storage_order"),
)

# A factor that leaves nothing.
_NOTHING = 1e-6
# Of recurrent layers.
_GATES = ("Tanh", "Relu", "Sigmoid", "HardSigmoid", "Softsign")

# Kernels divide by these without a check: zero would end the process.
_POSITIVE = (
    *("group", "strides", "dilations", "kernel_shape", "num_groups", "num_heads", "blocksize"),
    *("kv_num_heads", "q_num_heads", "hidden_size"),
)


def attributes(region: Region) -> Iterator[Rewrite]:
    """Set each attribute to its possible values, starting with the numbers in the original's own
    arguments.
    """
    versions = dict(region.graph.opsets)
    given = set(region.scalars())
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        for name, kind, now in present(node, versions.get(node.domain, 1)):
            for value in _values(region, node, name, kind, now):
                if name in _POSITIVE and not _is_positive(value):
                    continue
                if node.op_type == "Gemm" and name == "alpha" and abs(value) < _NOTHING:  # type: ignore[arg-type]
                    continue  # as if nothing were read, which fits all that does not depend on it
                if value == now or (
                    isinstance(now, float)
                    and isinstance(value, int | float)
                    and np.float32(value) == np.float32(now)
                ):
                    continue
                text = f"{name} is {shown(now)} and should be {shown(value)}"
                graph = replaced(region.graph, index, with_attribute(node, name, value))
                fitted = int(
                    isinstance(value, float) and value not in given | {*_FLOATS.get(name, ())}
                )
                yield Rewrite("attribute", node.output[0], text, graph, fitted=fitted)


def present(node: onnx.NodeProto, version: int) -> Iterator[tuple[str, object, object]]:
    """Yield each attribute of a node with its type and value, including unset ones.

    For operators that ONNX does not define (onnxruntime's fused ones), only set attributes are
    known.
    """
    kinds = onnx.defs.OpSchema.AttrType
    present = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        types = {bytes: kinds.STRING, float: kinds.FLOAT, int: kinds.INT}
        for name, now in present.items():
            yield name, types.get(type(now)), _decoded(now)
        return
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        usual = onnx.helper.get_attribute_value(default) if default.name else None
        yield name, attribute.type, _decoded(present.get(name, usual))


def _is_positive(value: object) -> bool:
    numbers = value if isinstance(value, list | tuple) else (value,)
    return all(isinstance(each, int) and each > 0 for each in numbers)


def _decoded(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_decoded(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def _values(
    region: Region, node: onnx.NodeProto, name: str, kind: object, now: object
) -> Iterator[object]:
    kinds = onnx.defs.OpSchema.AttrType
    if name in _WORDS and kind == kinds.STRING:
        yield from _WORDS[name]
    elif name in _FLAGS:
        yield from (0, 1)
    elif name in ("axis", "batch_axis", "time_axis"):
        yield from range(-4, 4)
    elif name == "perm" and isinstance(now, list | tuple) and len(now) <= 5:
        yield from map(list, itertools.permutations(range(len(now))))
    elif kind == kinds.FLOAT:
        yield from region.scalars()
        yield from _FLOATS.get(name, ())
        index = region.graph.producers[node.output[0]]
        fitting = fit(
            region,
            lambda number: replaced(region.graph, index, with_attribute(node, name, number)),
            float(now) if isinstance(now, int | float) else 1.0,
        )
        if fitting is not None:
            yield fitting
    elif kind == kinds.INT and name not in ("to", "dtype"):
        whole = [each for each in region.scalars() if abs(each) < 1 << 31 and each == int(each)]
        yield from map(int, whole)
    elif kind == kinds.INTS:
        yield from _lists(region, node, now)
    elif name == "activations" and isinstance(now, list):
        yield from _activations(now)
    elif name == "value" and node.op_type == "ConstantOfShape":
        yield from _fillings(region, now)


def _lists(region: Region, node: onnx.NodeProto, now: object) -> Iterator[object]:
    """Yield lists of integers: the original's own, doubled for pads, and small changes."""
    present = [int(each) for each in now] if isinstance(now, list | tuple) else None
    for operation in region.operations:
        for _, value in operation.scalars:
            if isinstance(value, tuple) and all(isinstance(each, int) for each in value):
                own = [int(each) for each in value]
                yield own
                yield [*own, *own]
                yield own[::-1]
    if present is None:
        if node.op_type.endswith(("Conv", "Pool")):
            yield from ([each] * 4 for each in (1, 2))
        return
    yield present[::-1]
    half = len(present) // 2
    yield [*present[half:], *present[:half]]
    for place, delta in itertools.product(range(len(present)), (1, -1)):
        yield [each + delta * (at == place) for at, each in enumerate(present)]
    yield [each + 1 for each in present]
    yield [each - 1 for each in present]


def _activations(now: list[str]) -> Iterator[list[str]]:
    """Yield a recurrent layer's activations with another one in each place, or in all."""
    for other in _GATES:
        yield [other] * len(now)
        for place in range(len(now)):
            yield [*now[:place], other, *now[place + 1 :]]


def _fillings(region: Region, now: object) -> Iterator[onnx.TensorProto]:
    """Yield other numbers to fill a tensor with, of the same type."""
    held = (
        onnx.numpy_helper.to_array(now) if isinstance(now, onnx.TensorProto) else np.zeros(1, "f")
    )
    for number in dict.fromkeys((0.0, 1.0, -1.0, *region.scalars())):
        with np.errstate(all="ignore"):
            other = np.full_like(held, number)
        if other != held:
            yield onnx.numpy_helper.from_array(other)


def shown(value: object) -> str:
    if value is None:
        return "not set"
    if isinstance(value, onnx.TensorProto):
        return shown(float(onnx.numpy_helper.to_array(value).flat[0]))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def operand_order(region: Region) -> Iterator[Rewrite]:
    """Swap two inputs of a node."""
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        for first, second in itertools.combinations(range(min(len(node.input), 5)), 2):
            if not node.input[first] or not node.input[second]:
                continue
            copy = copied(node)
            copy.input[first], copy.input[second] = node.input[second], node.input[first]
            text = f"its inputs {node.input[first]} and {node.input[second]} are swapped"
            yield Rewrite("operands", node.output[0], text, replaced(region.graph, index, copy))


def wiring(region: Region) -> Iterator[Rewrite]:
    """Rewire an input to another value: one that the original reads here, or one that the region
    bypasses.
    """
    inside = [name for index in region.nodes for name in region.graph.nodes[index].output if name]
    for edge in region.edges():
        shape = region.shapes.get(edge.value)
        near = {other.value for other in region.edges()}
        others = [*region.read, *near, *inside]
        for name in dict.fromkeys(others):
            if name in (edge.value, edge.reader):
                continue
            original = name in region.read and name not in near
            if not original and region.shapes.get(name) != shape:
                continue
            graph = rewired(region.graph, edge, name)
            skipped = _between(region.graph, edge.value, name)
            if any(node.op_type in _SHAPE_ONLY for node in skipped):
                text = (
                    f"it reads {edge.value}, made from the shape of {name}, and should read {name}"
                )
                yield Rewrite("wiring", edge.reader, text, graph)
            elif skipped and not _needed_elsewhere(region.graph, edge):
                yield _without(skipped, edge.value, name, graph)
            else:
                text = f"it reads {edge.value} and should read {name}"
                yield Rewrite("wiring", edge.reader, text, graph)


def _needed_elsewhere(graph: Graph, edge: RegionEdge) -> bool:
    """Say whether other nodes read an edge's value too, or it is an output: the nodes that compute
    it belong there, and this reader alone is wrong.
    """
    others = {graph.nodes[index].output[0] for index in graph.readers.get(edge.value, [])}
    return edge.value in graph.outputs or bool(others - {edge.reader})


def extra_at_end(region: Region) -> Iterator[Rewrite]:
    """Drop the last nodes: their result already exists before them."""
    index = region.graph.producers[region.target]
    for edge in region.edges():
        skipped = _between(region.graph, region.target, edge.value)
        if not skipped or region.shapes.get(edge.value) != region.shapes.get(region.target):
            continue
        node = onnx.helper.make_node("Identity", [edge.value], [region.target])
        graph = replaced(region.graph, index, node)
        yield _without(skipped, region.target, edge.value, graph)


def extra_inside(region: Region) -> Iterator[Rewrite]:
    """Drop a node for all that read its result: they get one of its inputs."""
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        value = node.output[0]
        for before in dict.fromkeys(node.input):
            if (
                value == region.target
                or before in region.graph.constants
                or region.shapes.get(before, ()) != region.shapes.get(value)
            ):
                continue
            passed = onnx.helper.make_node("Identity", [before], [value])
            yield _without([node], value, before, replaced(region.graph, index, passed))


def _between(graph: Graph, value: str, before: str) -> list[onnx.NodeProto]:
    """Return the nodes that lead from one value to another; none if there are none, or too many
    to be one step.

    More than two are one if they read nothing else that is computed, as a normalization does.
    """
    indices = graph.closure([value], {before})
    nodes = [graph.nodes[index] for index in indices]
    read = {name for node in nodes for name in node.input}
    if before not in read:
        return []
    if len(nodes) > 2 and not _of_one_operation(value, before):
        made = {name for node in nodes for name in node.output}
        others = read - made - {*graph.constants, before, ""}
        if len(nodes) > _ONE_STEP or others:
            return []
    return nodes


def _of_one_operation(value: str, before: str) -> bool:
    """Say whether a value comes before another inside the translation of one operation."""
    outer, inside, _ = before.partition(INSIDE)
    return bool(inside) and outer == value.partition(INSIDE)[0]


def _without(skipped: list[onnx.NodeProto], value: str, before: str, graph: Graph) -> Rewrite:
    """Return the rewrite to a graph without the nodes between two values. Those of one operation
    of another format are not nodes of their own: the operation is the wrong one.
    """
    if _of_one_operation(value, before):
        part = graph.nodes[graph.producers[before]].op_type
        return Rewrite("operator", value, f"only its {part} should be there", graph)
    return Rewrite("extra", skipped[0].output[0], f"{_listed(skipped)} should not be there", graph)


def _listed(nodes: list[onnx.NodeProto]) -> str:
    *before, last = (f"{node.op_type} {label(node)}" for node in nodes)
    return f"{', '.join(before)} and {last}" if before else last


def operators(region: Region) -> Iterator[Rewrite]:
    """Try the operators that a node's own is mistaken for."""
    versions = dict(region.graph.opsets)
    for index in reversed(region.nodes):
        node = region.graph.nodes[index]
        if node.output[0] == region.target and _reads_the_expected(region, node):
            continue  # it is superfluous, and not another that passes on what it reads
        for family in FAMILIES:
            for other in family if node.op_type in family else ():
                if other == node.op_type:
                    continue
                copy = copied(node)
                copy.op_type = other
                if other not in ("LpPool", *FAMILIES[-1]) and len(family) > 10:
                    del copy.attribute[:]
                _keep_known(copy, versions.get(node.domain, 1))
                text = f"it is {node.op_type} and should be {other}"
                graph = replaced(region.graph, index, copy)
                yield Rewrite("operator", node.output[0], text, graph)


def _reads_the_expected(region: Region, node: onnx.NodeProto) -> bool:
    read = (region.feeds[name] for name in node.input if name in region.feeds)
    return any(
        values.shape == region.expected.shape and relative_error(values, region.expected) <= EQUAL
        for values in read
    )


def _keep_known(node: onnx.NodeProto, version: int) -> None:
    """Remove the attributes that a node's operator does not have."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return
    kept = [each for each in node.attribute if each.name in schema.attributes]
    del node.attribute[:]
    node.attribute.extend(kept)

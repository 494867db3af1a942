"""Random faults: each changes one thing about a graph and says where, and what it may be called."""

import dataclasses
import random
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """What was changed: any of `nodes` (names of nodes, values or weights) is the right place, any
    of `kinds` the right name.
    """

    name: str
    nodes: frozenset[str]
    kinds: frozenset[str]


class NothingToMutateError(Exception):
    """The graph has nothing that this mutation could change."""


def _pick(chance: random.Random, options: list) -> object:
    if not options:
        raise NothingToMutateError
    return chance.choice(options)


def _mutation(name: str, nodes: list[str], *kinds: str) -> Mutation:
    return Mutation(name, frozenset(each for each in nodes if each), frozenset(kinds))


def _float_weights(model: onnx.ModelProto, least: int = 4) -> list[onnx.TensorProto]:
    return [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and int(np.prod(tensor.dims)) >= least
    ]


def _nodes(model: onnx.ModelProto, *types: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in types]


def _readers(model: onnx.ModelProto, name: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if name in node.input]


def _all_names(node: onnx.NodeProto) -> list[str]:
    return [node.name, *node.output]


# --- weights


def _weight(change: Callable[[np.ndarray, random.Random], np.ndarray], name: str) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        tensor = _pick(chance, _float_weights(model))
        before = numpy_helper.to_array(tensor)
        after = np.ascontiguousarray(change(before.copy(), chance)).astype(np.float32)
        if after.shape != before.shape or np.array_equal(before, after):
            raise NothingToMutateError
        tensor.CopyFrom(numpy_helper.from_array(after, tensor.name))
        return _mutation(name, [tensor.name], "weight", "exchanged", "order")

    return mutate


def _one_row(values: np.ndarray, chance: random.Random) -> np.ndarray:
    values[chance.randrange(len(values))] *= 1.5
    return values


def _with_nan(values: np.ndarray, chance: random.Random) -> np.ndarray:
    values.flat[chance.randrange(values.size)] = np.nan
    return values


def _permuted(values: np.ndarray, chance: random.Random) -> np.ndarray:
    order = list(range(len(values)))
    chance.shuffle(order)
    return values[order]


def _transposed(values: np.ndarray, chance: random.Random) -> np.ndarray:
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise NothingToMutateError
    return values.T


def _noisy(values: np.ndarray, chance: random.Random) -> np.ndarray:
    noise = np.random.default_rng(chance.randrange(1 << 30)).standard_normal(values.shape)
    return values + 0.02 * np.std(values) * noise


def _bfloat16(values: np.ndarray, chance: random.Random) -> np.ndarray:
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def exchanged_weights(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    tensors = _float_weights(model)
    pairs = [
        (a, b)
        for place, a in enumerate(tensors)
        for b in tensors[place + 1 :]
        if list(a.dims) == list(b.dims) and a.raw_data != b.raw_data
    ]
    first, second = _pick(chance, pairs)
    first.raw_data, second.raw_data = second.raw_data, first.raw_data
    readers = [n for t in (first, second) for r in _readers(model, t.name) for n in _all_names(r)]
    names = [first.name, second.name, *readers]
    return _mutation("exchanged weights", names, "exchanged", "weight", "operands")


# --- attributes


def _attributed(
    name: str, types: tuple[str, ...], attribute: str, values: tuple, *, default: object = None
) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        node = _pick(chance, _nodes(model, *types))
        now = next(
            (helper.get_attribute_value(a) for a in node.attribute if a.name == attribute), default
        )
        value = _pick(chance, [v for v in values if v != now])
        kept = [each for each in node.attribute if each.name != attribute]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(attribute, value)])
        return _mutation(name, _all_names(node), "attribute")

    return mutate


def permutation(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    node = _pick(chance, _nodes(model, "Transpose"))
    perm = list(node.attribute[0].ints)
    first, second = chance.sample(range(len(perm)), 2)
    perm[first], perm[second] = perm[second], perm[first]
    del node.attribute[0].ints[:]
    node.attribute[0].ints.extend(perm)
    return _mutation("permutation", _all_names(node), "attribute", "order", "wiring")


def padding(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    nodes = _nodes(model, "Conv", "MaxPool", "AveragePool")
    padded = [(n, a) for n in nodes for a in n.attribute if a.name == "pads" and any(a.ints)]
    node, attribute = _pick(chance, padded)
    pads = list(attribute.ints)
    half = len(pads) // 2
    pads[0], pads[half] = pads[0] + pads[half], 0
    del attribute.ints[:]
    attribute.ints.extend(pads)
    return _mutation("padding", _all_names(node), "attribute")


# --- operators and numbers


def _operator(name: str, family: tuple[str, ...]) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        node = _pick(chance, [n for n in _nodes(model, *family) if len(n.output) == 1])
        node.op_type = _pick(chance, [each for each in family if each != node.op_type])
        if not node.op_type.startswith("Reduce"):
            del node.attribute[:]
        return _mutation(name, _all_names(node), "operator", "missing", "extra", "constant")

    return mutate


def _constants(
    model: onnx.ModelProto, kind: int
) -> list[tuple[onnx.NodeProto, onnx.AttributeProto]]:
    return [
        (node, node.attribute[0])
        for node in _nodes(model, "Constant")
        if node.attribute[0].name == "value" and node.attribute[0].t.data_type == kind
    ]


def number(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    scalars = [
        (node, attribute)
        for node, attribute in _constants(model, onnx.TensorProto.FLOAT)
        if int(np.prod(attribute.t.dims)) == 1
    ]
    node, attribute = _pick(chance, scalars)
    value = numpy_helper.to_array(attribute.t) * np.float32(chance.choice([0.5, 1.1, 2.0, 10.0]))
    attribute.t.CopyFrom(numpy_helper.from_array(np.asarray(value, np.float32)))
    readers = [name for each in _readers(model, node.output[0]) for name in _all_names(each)]
    return _mutation("number", [*readers, *node.output], "constant", "missing", "extra", "operator")


def index(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    read = {name for node in _nodes(model, "Slice", "Gather") for name in node.input[1:]}
    whole = [c for c in _constants(model, onnx.TensorProto.INT64) if c[0].output[0] in read]
    node, attribute = _pick(chance, whole)
    value = numpy_helper.to_array(attribute.t) + chance.choice([1, -1])
    attribute.t.CopyFrom(numpy_helper.from_array(np.asarray(value, np.int64)))
    readers = [name for each in _readers(model, node.output[0]) for name in _all_names(each)]
    return _mutation("index", [*readers, *node.output], "constant", "wiring", "order", "attribute")


# --- wiring


def operand_order(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    node = _pick(chance, _nodes(model, "Sub", "Div", "MatMul", "Pow", "Concat", "Where"))
    first, second = node.input[-2], node.input[-1]
    node.input[len(node.input) - 2], node.input[len(node.input) - 1] = second, first
    return _mutation("operand order", _all_names(node), "operands", "wiring", "order", "constant")


def another_value(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    """Let a node read an earlier value of the same shape."""
    made: list[str] = [value.name for value in model.graph.input]
    options = []
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if len(shapes.get(name, ())) > 1:
                same = [each for each in made if shapes.get(each) == shapes[name] and each != name]
                options += [(node, place, other) for other in same]
        made += node.output
    node, place, other = _pick(chance, options)
    node.input[place] = other
    return _mutation("another value", _all_names(node), "wiring", "operands", "extra", "missing")


# --- more and less


def _insert(name: str, build: Callable[[str, str, random.Random], list], *kinds: str) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        floats = [
            (place, node)
            for place, node in enumerate(model.graph.node)
            if node.op_type in _COMPUTES and len(shapes.get(node.output[0], ())) > 1
        ]
        place, node = _pick(chance, floats)
        value = node.output[0]
        node.output[0] = f"{value}_before"
        made = build(node.output[0], value, chance)
        for offset, each in enumerate(made):
            each.name = f"{value}_inserted_{offset}"
            model.graph.node.insert(place + 1 + offset, each)
        names = [name for each in made for name in _all_names(each)]
        near = [n for each in _readers(model, value) for n in _all_names(each)]
        return _mutation(name, [*names, *_all_names(node), *near], "extra", *kinds)

    return mutate


_COMPUTES = (
    *("MatMul", "Gemm", "Conv", "Add", "Mul", "LayerNormalization", "BatchNormalization", "Relu"),
    *("Sub", "Div", "Gather", "Softmax", "Sigmoid", "Tanh", "Sqrt"),
)


def _constant(value: np.ndarray, name: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


def _scale(given: str, made: str, chance: random.Random) -> list[onnx.NodeProto]:
    factor = np.float32(chance.choice([0.5, 2.0, 1.25]))
    return [
        _constant(np.asarray(factor), f"{made}_factor"),
        helper.make_node("Mul", [given, f"{made}_factor"], [made]),
    ]


def _cast(given: str, made: str, chance: random.Random) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [given], [f"{made}_half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", [f"{made}_half"], [made], to=onnx.TensorProto.FLOAT),
    ]


def left_out(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    """Let all readers of a value read what it was computed from."""
    options = [
        (node, name)
        for node in model.graph.node
        for name in node.input
        if shapes.get(name) == shapes.get(node.output[0]) and len(shapes.get(name, ())) > 1
    ]
    node, source = _pick(chance, options)
    value = node.output[0]
    node.op_type, node.domain = "Identity", ""
    del node.attribute[:]
    del node.input[:]
    node.input.append(source)
    readers = [name for each in _readers(model, value) for name in _all_names(each)]
    makers = [n for each in model.graph.node if source in each.output for n in _all_names(each)]
    return _mutation(
        "left out",
        [*_all_names(node), *readers, *makers],
        *("missing", "operator", "wiring", "extra", "order"),
    )


# --- inputs and outputs


def _at_input(name: str, build: Callable[[str, str, tuple], list], kind: str) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        floats = {onnx.TensorProto.FLOAT: "f", onnx.TensorProto.INT64: "i"}
        inputs = [
            each.name
            for each in model.graph.input
            if floats.get(each.type.tensor_type.elem_type) == kind
        ]
        value = _pick(chance, inputs)
        near = [n for each in _readers(model, value) for n in _all_names(each)]
        made = f"{value}_changed"
        for node in _readers(model, value):
            for place, each in enumerate(node.input):
                if each == value:
                    node.input[place] = made
        nodes = build(value, made, shapes[value])
        for place, node in enumerate(nodes):
            node.name = f"{made}_{place}"
            model.graph.node.insert(place, node)
        names = [n for node in nodes for n in _all_names(node)]
        return _mutation(name, [value, *names, *near], "extra", "order", "missing", "wiring")

    return mutate


def _reversed_channels(given: str, made: str, shape: tuple) -> list[onnx.NodeProto]:
    order = np.arange(shape[1])[::-1].copy()
    return [
        _constant(order, f"{made}_order"),
        helper.make_node("Gather", [given, f"{made}_order"], [made], axis=1),
    ]


def _normalized(given: str, made: str, shape: tuple) -> list[onnx.NodeProto]:
    return [
        _constant(np.float32(0.45).reshape(()), f"{made}_mean"),
        _constant(np.float32(0.225).reshape(()), f"{made}_std"),
        helper.make_node("Sub", [given, f"{made}_mean"], [f"{made}_centred"]),
        helper.make_node("Div", [f"{made}_centred", f"{made}_std"], [made]),
    ]


def _shifted(given: str, made: str, shape: tuple) -> list[onnx.NodeProto]:
    order = np.roll(np.arange(shape[1]), 1)
    return [
        _constant(order, f"{made}_order"),
        helper.make_node("Gather", [given, f"{made}_order"], [made], axis=1),
    ]


def exchanged_inputs(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    names = [each.name for each in model.graph.input]
    pairs = [(a, b) for a in names for b in names if a < b and shapes[a] == shapes[b]]
    first, second = _pick(chance, pairs)
    other = {first: second, second: first}
    near = [n for v in (first, second) for each in _readers(model, v) for n in _all_names(each)]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name in other:
                node.input[place] = other[name]
    return _mutation("exchanged inputs", [first, second, *near], "inputs", "wiring")


def _at_output(name: str, build: Callable[[str, str, random.Random], list]) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        value = _pick(chance, [each.name for each in model.graph.output])
        producer = next(node for node in model.graph.node if value in node.output)
        place = list(model.graph.node).index(producer)
        producer.output[list(producer.output).index(value)] = f"{value}_before"
        made = build(f"{value}_before", value, chance)
        for offset, each in enumerate(made):
            each.name = f"{value}_changed_{offset}"
            model.graph.node.insert(place + 1 + offset, each)
        names = [n for each in made for n in _all_names(each)]
        return _mutation(name, [*names, *_all_names(producer)], "extra", "missing", "order")

    return mutate


def _node(operator: str, **attributes: object) -> Callable:
    return lambda given, made, _: [helper.make_node(operator, [given], [made], **attributes)]


MUTATIONS: tuple[Callable[[onnx.ModelProto, Shapes, random.Random], Mutation], ...] = (
    _weight(lambda v, c: v * np.float32(c.choice([0.5, 1.1, 3.0])), "scaled weight"),
    _weight(lambda v, _: -v, "negated weight"),
    _weight(lambda v, _: v.astype(np.float16).astype(np.float32), "weight through float16"),
    _weight(_bfloat16, "weight through bfloat16"),
    _weight(_one_row, "one row"),
    _weight(_with_nan, "NaN in a weight"),
    _weight(_permuted, "rows in a different order"),
    _weight(_transposed, "transposed weight"),
    _weight(_noisy, "noise on a weight"),
    _weight(lambda v, _: np.zeros_like(v), "weight of zeros"),
    exchanged_weights,
    _attributed(
        "epsilon",
        ("LayerNormalization", "BatchNormalization", "InstanceNormalization"),
        "epsilon",
        (1e-2, 1e-1),
        default=1e-5,
    ),
    _attributed("axis", ("Softmax", "LogSoftmax", "Concat", "Gather"), "axis", (0, 1, 2)),
    _attributed("alpha", ("Elu", "LeakyRelu", "Gemm", "HardSigmoid"), "alpha", (0.3, 0.7)),
    _attributed("transposed operand", ("Gemm",), "transB", (0, 1), default=0),
    _attributed("count of padding", ("AveragePool",), "count_include_pad", (0, 1), default=0),
    _attributed(
        "coordinates",
        ("Resize",),
        "coordinate_transformation_mode",
        ("asymmetric", "align_corners"),
    ),
    _attributed("strides", ("Conv", "MaxPool", "AveragePool"), "dilations", ([2, 2],)),
    permutation,
    padding,
    _operator("activation", ("Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Neg", "Abs", "Exp")),
    _operator("unary", ("Sqrt", "Exp", "Log", "Reciprocal", "Abs", "Sin", "Cos")),
    _operator("binary", ("Add", "Sub", "Mul", "Div")),
    _operator("reduction", ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")),
    number,
    index,
    operand_order,
    another_value,
    _insert("extra Relu", lambda g, m, _: [helper.make_node("Relu", [g], [m])], "operator"),
    _insert("extra scale", _scale, "constant"),
    _insert("extra cast", _cast),
    _insert("extra negation", lambda g, m, _: [helper.make_node("Neg", [g], [m])], "operator"),
    left_out,
    _at_input("reversed channels", _reversed_channels, "f"),
    _at_input("normalized input", _normalized, "f"),
    _at_input("shifted input", _shifted, "i"),
    exchanged_inputs,
    _at_output("softmax on an output", _node("Softmax", axis=-1)),
    _at_output("sigmoid on an output", _node("Sigmoid")),
    _at_output("scaled output", _scale),
)

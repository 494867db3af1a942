"""Random faults: each changes one thing about a graph and says where, and what it may be called."""

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from faults.mutants.changes import Mutation, Shapes, all_names, mutation, nodes_of, pick, readers_of
from faults.mutants.weights import WEIGHT_MUTATIONS

# --- attributes


def _attributed(
    name: str, types: tuple[str, ...], attribute: str, values: tuple, *, default: object = None
) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        node = pick(chance, nodes_of(model, *types))
        now = next(
            (helper.get_attribute_value(a) for a in node.attribute if a.name == attribute), default
        )
        value = pick(chance, [v for v in values if v != now])
        kept = [each for each in node.attribute if each.name != attribute]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(attribute, value)])
        return mutation(name, all_names(node), "attribute")

    return mutate


def permutation(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    node = pick(chance, nodes_of(model, "Transpose"))
    perm = list(node.attribute[0].ints)
    first, second = chance.sample(range(len(perm)), 2)
    perm[first], perm[second] = perm[second], perm[first]
    del node.attribute[0].ints[:]
    node.attribute[0].ints.extend(perm)
    return mutation("permutation", all_names(node), "attribute", "order", "wiring")


def padding(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    nodes = nodes_of(model, "Conv", "MaxPool", "AveragePool")
    padded = [(n, a) for n in nodes for a in n.attribute if a.name == "pads" and any(a.ints)]
    node, attribute = pick(chance, padded)
    pads = list(attribute.ints)
    half = len(pads) // 2
    pads[0], pads[half] = pads[0] + pads[half], 0
    del attribute.ints[:]
    attribute.ints.extend(pads)
    return mutation("padding", all_names(node), "attribute")


# --- operators and numbers


def _operator(name: str, family: tuple[str, ...]) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        node = pick(chance, [n for n in nodes_of(model, *family) if len(n.output) == 1])
        node.op_type = pick(chance, [each for each in family if each != node.op_type])
        if not node.op_type.startswith("Reduce"):
            del node.attribute[:]
        return mutation(name, all_names(node), "operator", "missing", "extra", "constant")

    return mutate


def _constants(
    model: onnx.ModelProto, kind: int
) -> list[tuple[onnx.NodeProto, onnx.AttributeProto]]:
    return [
        (node, node.attribute[0])
        for node in nodes_of(model, "Constant")
        if node.attribute[0].name == "value" and node.attribute[0].t.data_type == kind
    ]


def number(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    scalars = [
        (node, attribute)
        for node, attribute in _constants(model, onnx.TensorProto.FLOAT)
        if int(np.prod(attribute.t.dims)) == 1
    ]
    node, attribute = pick(chance, scalars)
    value = numpy_helper.to_array(attribute.t) * np.float32(chance.choice([0.5, 1.1, 2.0, 10.0]))
    attribute.t.CopyFrom(numpy_helper.from_array(np.asarray(value, np.float32)))
    readers = [name for each in readers_of(model, node.output[0]) for name in all_names(each)]
    return mutation("number", [*readers, *node.output], "constant", "missing", "extra", "operator")


def index(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    read = {name for node in nodes_of(model, "Slice", "Gather") for name in node.input[1:]}
    whole = [c for c in _constants(model, onnx.TensorProto.INT64) if c[0].output[0] in read]
    node, attribute = pick(chance, whole)
    value = numpy_helper.to_array(attribute.t) + chance.choice([1, -1])
    attribute.t.CopyFrom(numpy_helper.from_array(np.asarray(value, np.int64)))
    readers = [name for each in readers_of(model, node.output[0]) for name in all_names(each)]
    return mutation("index", [*readers, *node.output], "constant", "wiring", "order", "attribute")


# --- wiring


def operand_order(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    node = pick(chance, nodes_of(model, "Sub", "Div", "MatMul", "Pow", "Concat", "Where"))
    first, second = node.input[-2], node.input[-1]
    node.input[len(node.input) - 2], node.input[len(node.input) - 1] = second, first
    return mutation("operand order", all_names(node), "operands", "wiring", "order", "constant")


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
    node, place, other = pick(chance, options)
    node.input[place] = other
    return mutation("another value", all_names(node), "wiring", "operands", "extra", "missing")


# --- more and less


def _insert(name: str, build: Callable[[str, str, random.Random], list], *kinds: str) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        floats = [
            (place, node)
            for place, node in enumerate(model.graph.node)
            if node.op_type in _COMPUTES and len(shapes.get(node.output[0], ())) > 1
        ]
        place, node = pick(chance, floats)
        value = node.output[0]
        node.output[0] = f"{value}_before"
        made = build(node.output[0], value, chance)
        for offset, each in enumerate(made):
            each.name = f"{value}_inserted_{offset}"
            model.graph.node.insert(place + 1 + offset, each)
        names = [name for each in made for name in all_names(each)]
        near = [n for each in readers_of(model, value) for n in all_names(each)]
        return mutation(name, [*names, *all_names(node), *near], "extra", *kinds)

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
    node, source = pick(chance, options)
    value = node.output[0]
    node.op_type, node.domain = "Identity", ""
    del node.attribute[:]
    del node.input[:]
    node.input.append(source)
    readers = [name for each in readers_of(model, value) for name in all_names(each)]
    makers = [n for each in model.graph.node if source in each.output for n in all_names(each)]
    return mutation(
        "left out",
        [*all_names(node), *readers, *makers],
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
        value = pick(chance, inputs)
        near = [n for each in readers_of(model, value) for n in all_names(each)]
        made = f"{value}_changed"
        for node in readers_of(model, value):
            for place, each in enumerate(node.input):
                if each == value:
                    node.input[place] = made
        nodes = build(value, made, shapes[value])
        for place, node in enumerate(nodes):
            node.name = f"{made}_{place}"
            model.graph.node.insert(place, node)
        names = [n for node in nodes for n in all_names(node)]
        return mutation(name, [value, *names, *near], "extra", "order", "missing", "wiring")

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
    first, second = pick(chance, pairs)
    other = {first: second, second: first}
    near = [n for v in (first, second) for each in readers_of(model, v) for n in all_names(each)]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name in other:
                node.input[place] = other[name]
    return mutation("exchanged inputs", [first, second, *near], "inputs", "wiring")


def _at_output(name: str, build: Callable[[str, str, random.Random], list]) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        value = pick(chance, [each.name for each in model.graph.output])
        producer = next(node for node in model.graph.node if value in node.output)
        place = list(model.graph.node).index(producer)
        producer.output[list(producer.output).index(value)] = f"{value}_before"
        made = build(f"{value}_before", value, chance)
        for offset, each in enumerate(made):
            each.name = f"{value}_changed_{offset}"
            model.graph.node.insert(place + 1 + offset, each)
        names = [n for each in made for n in all_names(each)]
        return mutation(name, [*names, *all_names(producer)], "extra", "missing", "order")

    return mutate


def _node(operator: str, **attributes: object) -> Callable:
    return lambda given, made, _: [helper.make_node(operator, [given], [made], **attributes)]


MUTATIONS: tuple[Callable[[onnx.ModelProto, Shapes, random.Random], Mutation], ...] = (
    *WEIGHT_MUTATIONS,
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

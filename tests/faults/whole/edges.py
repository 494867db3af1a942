"""Faults at a graph's inputs and outputs, pairs of faults, and faults inside a branch of an If."""

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from faults.mutants.changes import Mutation, NothingToMutateError, Shapes
from faults.mutants.mutations import MUTATIONS

Mutate = Callable[[onnx.ModelProto, Shapes, random.Random], Mutation]
# Nodes from one name to another, for a value of this shape.
Build = Callable[[str, str, tuple[int, ...], random.Random], list[onnx.NodeProto]]

_STEPS = ("extra", "order", "missing", "wiring", "constant")
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _constant(name: str, values: object, kind: type[np.generic]) -> onnx.NodeProto:
    tensor = numpy_helper.from_array(np.asarray(values, kind))
    return helper.make_node("Constant", [], [name], value=tensor)


def _arithmetic(operator: str, values: object, kind: type[np.generic] = np.float32) -> Build:
    return lambda given, made, *_: [
        _constant(f"{made}_number", values, kind),
        helper.make_node(operator, [given, f"{made}_number"], [made]),
    ]


def _ones(given: str, made: str, shape: tuple[int, ...], chance: random.Random) -> list:
    return [
        _constant(f"{made}_zero", 0, np.int64),
        _constant(f"{made}_one", 1, np.int64),
        helper.make_node("Mul", [given, f"{made}_zero"], [f"{made}_zeros"]),
        helper.make_node("Add", [f"{made}_zeros", f"{made}_one"], [made]),
    ]


def _inverted(given: str, made: str, shape: tuple[int, ...], chance: random.Random) -> list:
    return [
        _constant(f"{made}_one", 1, np.int64),
        helper.make_node("Sub", [f"{made}_one", given], [made]),
    ]


def _flipped(axis: int) -> Build:
    def build(given: str, made: str, shape: tuple[int, ...], chance: random.Random) -> list:
        bounds = {"starts": -1, "ends": -(2**31), "axes": axis, "steps": -1}
        names = [f"{made}_{name}" for name in bounds]
        constants = [
            _constant(n, [v], np.int64) for n, v in zip(names, bounds.values(), strict=True)
        ]
        return [*constants, helper.make_node("Slice", [given, *names], [made])]

    return build


def _turned(given: str, made: str, shape: tuple[int, ...], chance: random.Random) -> list:
    if len(shape) < 3 or shape[-1] != shape[-2]:
        raise NothingToMutateError
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return [helper.make_node("Transpose", [given], [made], perm=order)]


def _normalized(given: str, made: str, shape: tuple[int, ...], chance: random.Random) -> list:
    if len(shape) != 4 or shape[1] != 3:
        raise NothingToMutateError
    mean, std = (np.asarray(each, np.float32)[:, None, None] for each in (_MEAN, _STD))
    return [
        _constant(f"{made}_mean", mean, np.float32),
        _constant(f"{made}_std", std, np.float32),
        helper.make_node("Sub", [given, f"{made}_mean"], [f"{made}_centered"]),
        helper.make_node("Div", [f"{made}_centered", f"{made}_std"], [made]),
    ]


def _at_input(name: str, build: Build, wanted: Callable[[str, int, int], bool]) -> Mutate:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        values = [
            value.name
            for value in model.graph.input
            if wanted(value.name, value.type.tensor_type.elem_type, len(shapes[value.name]))
        ]
        if not values:
            raise NothingToMutateError
        value = chance.choice(values)
        made, near = f"{value}_changed", []
        for node in model.graph.node:
            for place, read in enumerate(node.input):
                if read == value:
                    node.input[place] = made
                    near += [node.name, *node.output]
        nodes = build(value, made, shapes[value], chance)
        for place, node in enumerate(nodes):
            node.name = f"{made}_{place}"
            model.graph.node.insert(place, node)
        names = {value, *near, *(n for node in nodes for n in (node.name, *node.output))}
        return Mutation(name, frozenset(names - {""}), frozenset((*_STEPS, "inputs")))

    return mutate


def _at_output(name: str, build: Build) -> Mutate:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        value = chance.choice([each.name for each in model.graph.output])
        producer = next(node for node in model.graph.node if value in node.output)
        place = list(model.graph.node).index(producer)
        before = f"{value}_before"
        nodes = build(before, value, shapes[value], chance)
        producer.output[list(producer.output).index(value)] = before
        for offset, node in enumerate(nodes):
            node.name = f"{value}_changed_{offset}"
            model.graph.node.insert(place + 1 + offset, node)
        names = {value, before, producer.name, *(n for e in nodes for n in (e.name, *e.output))}
        return Mutation(name, frozenset(names - {""}), frozenset((*_STEPS, "outputs", "operator")))

    return mutate


def exchanged_outputs(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    """Exchange two outputs of one shape."""
    names = [value.name for value in model.graph.output]
    pairs = [(a, b) for a in names for b in names if a < b and shapes[a] == shapes[b]]
    if not pairs:
        raise NothingToMutateError
    first, second = chance.choice(pairs)
    other = {first: second, second: first}
    near = []
    for node in model.graph.node:
        if any(name in other for name in node.output):
            near.append(node.name)
        for names_of in (node.input, node.output):
            for place, name in enumerate(names_of):
                names_of[place] = other.get(name, name)
    return Mutation("exchanged outputs", frozenset({first, second, *near}), frozenset({"outputs"}))


def two_faults(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    """Make two faults; the headline must be about one of them."""
    one, other = (chance.choice(MUTATIONS)(model, shapes, chance) for _ in range(2))
    return Mutation("two faults", one.nodes | other.nodes, one.kinds | other.kinds)


def inside_a_branch(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    """Make a fault, and move a node that it changed into the branch of an If that is taken."""
    mutation = chance.choice(MUTATIONS)(model, shapes, chance)
    places = [
        place
        for place, node in enumerate(model.graph.node)
        if node.op_type != "Constant" and node.name in mutation.nodes and len(node.output) == 1
    ]
    if not places:
        raise NothingToMutateError
    place = chance.choice(places)
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[place])
    (value,) = node.output
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.output[0] = f"{value}_inside"
        result = helper.make_tensor_value_info(inner.output[0], TensorProto.UNDEFINED, None)
        result.ClearField("type")
        branches[name] = helper.make_graph([inner], name, [], [result])
    first = model.graph.input[0].name
    made = [
        helper.make_node("Size", [first], [f"{value}_size"]),
        _constant(f"{value}_zero", 0, np.int64),
        helper.make_node("Greater", [f"{value}_size", f"{value}_zero"], [f"{value}_any"]),
        helper.make_node("If", [f"{value}_any"], [value], name=f"{value}_choice", **branches),
    ]
    del model.graph.node[place]
    for offset, each in enumerate(made):
        model.graph.node.insert(place + offset, each)
    nodes = mutation.nodes | {f"{value}_inside", f"{value}_choice"}
    return Mutation("inside a branch", nodes, mutation.kinds)


def _image(name: str, kind: int, rank: int) -> bool:
    return kind == TensorProto.FLOAT and rank == 4


def _floats(name: str, kind: int, rank: int) -> bool:
    return kind == TensorProto.FLOAT


def _ids(name: str, kind: int, rank: int) -> bool:
    return name == "input_ids"


def _mask(name: str, kind: int, rank: int) -> bool:
    return name == "attention_mask"


EDGES: tuple[Mutate, ...] = (
    _at_input("rows for columns", _turned, _image),
    _at_input("mirrored image", _flipped(3), _image),
    _at_input("reversed channels", _flipped(1), _image),
    _at_input("normalized twice", _normalized, _image),
    _at_input("255 for 1", _arithmetic("Mul", 255.0), _floats),
    _at_input("centered input", _arithmetic("Sub", 0.5), _floats),
    _at_input("shifted words", _arithmetic("Sub", 1, np.int64), _ids),
    _at_input("mask ignored", _ones, _mask),
    _at_input("mask inverted", _inverted, _mask),
    _at_input("padding on the left", _flipped(1), _mask),
    _at_output("log of an output", lambda g, m, *_: [helper.make_node("Log", [g], [m])]),
    _at_output("output offset", _arithmetic("Add", 0.25)),
    _at_output("output reversed", _flipped(-1)),
    _at_output("tanh of an output", lambda g, m, *_: [helper.make_node("Tanh", [g], [m])]),
    exchanged_outputs,
    two_faults,
    inside_a_branch,
)

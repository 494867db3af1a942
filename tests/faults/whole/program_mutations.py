"""Random faults of a converter to Core ML: each changes one thing about an ML program, and says
where, and what it may be called.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from faults.mutants.changes import Mutation, NothingToMutateError, mutation
from faults.whole.program_editing import ProgramEditor, pick
from faults.whole.weight_faults import WEIGHT_FAULTS, ChangeWeight, changed_weight, exchangeable

Mutate = Callable[[ProgramEditor, random.Random], Mutation]

_ACTIVATIONS = ("relu", "sigmoid", "tanh", "erf", "softplus", "silu")
_UNARY = ("sqrt", "exp", "sin", "cos", "abs", "square")
_BINARY = ("add", "sub", "mul", "real_div", "maximum", "minimum")
_REDUCTIONS = ("reduce_mean", "reduce_max", "reduce_min", "reduce_sum", "reduce_l2_norm")
_WEIGHTS = ("weight", "weight_ih", "weight_hh", "gamma", "beta", "bias", "mean", "variance")
_COMPUTES = ("add", "mul", "sub", "real_div", "linear", "matmul", "conv", "layer_norm", "softmax")


def _names(editor: ProgramEditor, operation: Any) -> list[str]:
    return [each.name for each in operation.outputs]


def _near(editor: ProgramEditor, operation: Any) -> list[str]:
    """Return what reads an operation's result: a fault between the two has either as its place."""
    readers = editor.readers(operation.outputs[0].name)
    return [name for each in readers for name in _names(editor, each)]


# --- arguments


def _number(name: str, arguments: tuple[str, ...], values: tuple[float, ...]) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        options = [
            (op, argument)
            for op in editor.operations
            for argument in arguments
            if isinstance(editor.value(op, argument), float | np.floating)
        ]
        op, argument = pick(chance, options)
        editor.put(op, argument, np.float32(chance.choice(values)))
        return mutation(name, _names(editor, op), "attribute", "constant")

    return mutate


def _axis(editor: ProgramEditor, chance: random.Random) -> Mutation:
    options = editor.of("softmax", "concat", "gather", "cumsum", "reduce_argmax", "stack")
    op = pick(chance, [each for each in options if editor.value(each, "axis") is not None])
    now = int(editor.value(op, "axis"))
    editor.put(op, "axis", np.int32(chance.choice([a for a in (0, 1, 2, -1) if a != now])))
    return mutation("axis", _names(editor, op), "attribute", "order", "wiring")


def _reduced_axes(editor: ProgramEditor, chance: random.Random) -> Mutation:
    options = [op for op in editor.operations if op.type.startswith("reduce_")]
    op = pick(chance, [op for op in options if editor.value(op, "axes") is not None])
    axes = np.asarray(editor.value(op, "axes"))
    rank = len(editor.shapes[editor.read(op, "x")])
    others = [axis for axis in range(rank) if axis not in axes % rank]
    changed = axes.copy()
    changed[chance.randrange(len(axes))] = pick(chance, others)
    editor.put(op, "axes", np.sort(changed).astype(np.int32))
    return mutation("reduced axes", _names(editor, op), "constant", "attribute", "operator")


def _pads(editor: ProgramEditor, chance: random.Random) -> Mutation:
    ops = [op for op in editor.operations if editor.value(op, "pad") is not None]
    op = pick(chance, [op for op in ops if np.asarray(editor.value(op, "pad")).any()])
    pads = np.array(editor.value(op, "pad"), np.int32)
    place = pick(chance, [i for i in range(0, len(pads), 2) if pads[i] + pads[i + 1]])
    pads[place], pads[place + 1] = pads[place] + 1, pads[place + 1] - 1
    if pads.min() < 0:
        raise NothingToMutateError
    editor.put(op, "pad", pads)
    return mutation("pads", _names(editor, op), "attribute", "constant")


def _permutation(editor: ProgramEditor, chance: random.Random) -> Mutation:
    op = pick(chance, editor.of("transpose"))
    perm = np.array(editor.value(op, "perm"), np.int32)
    first, second = chance.sample(range(len(perm)), 2)
    perm[[first, second]] = perm[[second, first]]
    editor.put(op, "perm", perm)
    return mutation("permutation", _names(editor, op), "attribute", "order", "wiring")


def _begin(editor: ProgramEditor, chance: random.Random) -> Mutation:
    ops = [op for op in editor.of("slice_by_index") if editor.value(op, "begin") is not None]
    op = pick(chance, [op for op in ops if editor.value(op, "end") is not None])
    begin, end = (np.array(editor.value(op, each), np.int32) for each in ("begin", "end"))
    place, step = chance.randrange(len(begin)), chance.choice([1, -1])
    begin[place] += step
    end[place] += step
    editor.put(op, "begin", begin)
    editor.put(op, "end", end)
    return mutation("slice", _names(editor, op), "constant", "wiring", "order", "attribute")


def _flag(name: str, argument: str) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        options = [
            op
            for op in editor.operations
            if isinstance(editor.value(op, argument), bool | np.bool_)
        ]
        op = pick(chance, options)
        editor.put(op, argument, not bool(editor.value(op, argument)))
        near = [n for key in ("x", "y") if (n := editor.read(op, key))]
        names = [*_names(editor, op), *near]
        return mutation(name, names, "attribute", "order", "extra", "missing", "operands")

    return mutate


def _gelu_mode(editor: ProgramEditor, chance: random.Random) -> Mutation:
    op = pick(chance, editor.of("gelu"))
    exact = editor.value(op, "mode") == "EXACT"
    editor.put(op, "mode", "TANH_APPROXIMATION" if exact else "EXACT")
    return mutation("gelu mode", _names(editor, op), "attribute", "operator")


def _dropped(name: str, argument: str) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        ops = [op for op in editor.operations if editor.read(op, argument)]
        op = pick(chance, [op for op in ops if op.type != "lstm"])
        names = [*_names(editor, op), *_near(editor, op)]
        editor.remove_argument(op, argument)
        return mutation(name, names, "missing", "weight", "constant")

    return mutate


# --- operations


def _another(name: str, family: tuple[str, ...]) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        op = pick(chance, editor.of(*family))
        op.type = chance.choice([each for each in family if each != op.type])
        kinds = ("operator", "missing", "extra", "constant")
        return mutation(name, [*_names(editor, op), *_near(editor, op)], *kinds)

    return mutate


def _left_out(editor: ProgramEditor, chance: random.Random) -> Mutation:
    shapes = editor.shapes
    options = [
        (op, name)
        for op in editor.operations
        for name in (editor.read(op, "x"), editor.read(op, "y"))
        if name in shapes and len(shapes[name]) > 1
        and shapes[name] == shapes.get(op.outputs[0].name)
    ]  # fmt: skip
    op, source = pick(chance, options)
    value = op.outputs[0].name
    for given in list(op.inputs):
        del op.inputs[given]
    op.type = "identity"
    op.inputs["x"].arguments.add().name = source
    makers = [n for each in editor.operations if source in _names(editor, each)
              for n in _names(editor, each)]  # fmt: skip
    kinds = ("missing", "operator", "wiring", "extra", "order")
    return mutation("left out", [value, *_near(editor, op), *makers], *kinds)


def _inserted(name: str, kind: str, *kinds: str, **constants: Any) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        options = [op for op in editor.of(*_COMPUTES) if editor.readers(op.outputs[0].name)]
        op = pick(chance, options)
        near = _near(editor, op)
        made = editor.insert_after(op, kind, **constants)
        return mutation(name, [made, *_names(editor, op), *near], "extra", *kinds)

    return mutate


# --- wiring


def _operands(editor: ProgramEditor, chance: random.Random) -> Mutation:
    pairs = {"sub": "xy", "real_div": "xy", "pow": "xy", "matmul": "xy", "select": "ab"}
    options = []
    for op in editor.of(*pairs):
        one, other = (editor.read(op, each) for each in pairs[op.type])
        if one and other and one != other:
            options.append(op)
    op = pick(chance, options)
    first, second = pairs[op.type]
    one, other = editor.read(op, first), editor.read(op, second)
    editor.wire(op, first, str(other))
    editor.wire(op, second, str(one))
    return mutation("operands", _names(editor, op), "operands", "wiring", "order", "constant")


def _another_value(editor: ProgramEditor, chance: random.Random) -> Mutation:
    made: list[str] = [each.name for each in editor.spec.description.input]
    options = []
    for op in editor.operations:
        for argument in ("x", "y"):
            name = editor.read(op, argument)
            shape = editor.shapes.get(name or "", ())
            if len(shape) > 1:
                same = [each for each in made if editor.shapes.get(each) == shape and each != name]
                options += [(op, argument, other) for other in same]
        made += _names(editor, op)
    op, argument, other = pick(chance, options)
    editor.wire(op, argument, other)
    kinds = ("wiring", "operands", "extra", "missing")
    return mutation("another value", [*_names(editor, op), other], *kinds)


def _outputs(editor: ProgramEditor, chance: random.Random) -> Mutation:
    names = [each.name for each in editor.spec.description.output]
    pairs = [(a, b) for a in names for b in names if a < b and editor.shapes[a] == editor.shapes[b]]
    first, second = pick(chance, pairs)
    other = {first: second, second: first}
    for op in editor.operations:
        for each in op.outputs:
            each.name = other.get(each.name, each.name)
        for given in op.inputs.values():
            for each in given.arguments:
                each.name = other.get(each.name, each.name)
    return mutation("exchanged outputs", [first, second], "outputs")


# --- weights


def _weight(name: str, change: ChangeWeight) -> Mutate:
    def mutate(editor: ProgramEditor, chance: random.Random) -> Mutation:
        op, argument, values = pick(chance, _weights(editor))
        after = changed_weight(values, change, chance)
        weight = str(editor.read(op, argument))
        editor.put(op, argument, after)
        names = [*_names(editor, op), weight, f"{op.outputs[0].name}_{argument}_put"]
        return mutation(name, names, "weight", "exchanged", "order")

    return mutate


def _weights(editor: ProgramEditor) -> list[tuple[Any, str, np.ndarray]]:
    found = []
    for op in editor.operations:
        arguments = [*_WEIGHTS, *(("x",) if op.type == "gather" else ())]
        for argument in arguments:
            values = editor.value(op, argument)
            if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size > 3:
                found.append((op, argument, values.astype(np.float32)))
    return found


def _exchanged_weights(editor: ProgramEditor, chance: random.Random) -> Mutation:
    one, other = pick(chance, exchangeable(_weights(editor)))
    names = []
    for (op, argument, _), values in ((one, other[2]), (other, one[2])):
        names += [*_names(editor, op), f"{op.outputs[0].name}_{argument}_put"]
        editor.put(op, argument, values)
    return mutation("exchanged weights", names, "exchanged", "weight", "operands")


MUTATIONS: tuple[Mutate, ...] = (
    _number("epsilon", ("epsilon",), (1e-2, 1e-1)),
    _number("alpha", ("alpha", "beta"), (0.3, 0.7, 2.0)),
    _number("number", ("y", "x"), (0.3, 1.7, 3.0)),
    _axis,
    _reduced_axes,
    _pads,
    _permutation,
    _begin,
    _flag("transposed operand", "transpose_y"),
    _flag("count of padding", "exclude_padding_from_average"),
    _flag("corners", "align_corners"),
    _gelu_mode,
    _dropped("dropped bias", "bias"),
    _dropped("dropped gamma", "gamma"),
    _dropped("dropped beta", "beta"),
    _another("activation", _ACTIVATIONS),
    _another("unary", _UNARY),
    _another("binary", _BINARY),
    _another("reduction", _REDUCTIONS),
    _left_out,
    _inserted("extra activation", "relu", "operator"),
    _inserted("extra scale", "mul", "constant", y=np.float32(1.25)),
    _inserted("extra tanh", "tanh", "operator"),
    _operands,
    _another_value,
    _outputs,
    *(_weight(name, change) for name, change in WEIGHT_FAULTS.items()),
    _exchanged_weights,
)

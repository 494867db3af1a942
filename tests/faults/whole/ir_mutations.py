"""Random faults of a converter to OpenVINO: each changes one thing about an IR, and says where, and
what it may be called.
"""

import random
from collections.abc import Callable
from xml.etree.ElementTree import Element

import numpy as np

from faults.mutants.changes import Mutation, NothingToMutateError, mutation
from faults.whole.ir_editing import IREditor, name_of
from faults.whole.program_editing import pick
from faults.whole.weight_faults import WEIGHT_FAULTS, ChangeWeight, changed_weight, exchangeable

Mutate = Callable[[IREditor, random.Random], Mutation]

_ACTIVATIONS = ("ReLU", "Sigmoid", "Tanh", "Erf", "SoftPlus", "HSwish")
_UNARY = ("Sqrt", "Exp", "Sin", "Cos", "Abs", "Negative")
_BINARY = ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum")
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2")
_COMPUTES = ("Add", "Multiply", "Subtract", "MatMul", "Convolution", "MVN", "SoftMax")
# The inputs that are weights, by type.
_WEIGHTS = {
    "Convolution": (1,),
    "GroupConvolution": (1,),
    "MatMul": (0, 1),
    "Gather": (0,),
    "Add": (0, 1),
    "Multiply": (0, 1),
    "LSTMSequence": (4, 5, 6),
    "GRUSequence": (3, 4, 5),
    "BatchNormInference": (1, 2, 3, 4),
}


def _names(editor: IREditor, layer: Element) -> list[str]:
    return [name_of(layer), editor.value(layer)]


def _near(editor: IREditor, layer: Element) -> list[str]:
    """Return what reads a layer: a fault between the two has either as its place."""
    return [name for each in editor.readers(layer) for name in _names(editor, each)]


def _moving(editor: IREditor, layers: list[Element]) -> list[Element]:
    """Return the layers whose results are tensors, rather than sizes."""
    return [each for each in layers if len(editor.shape(each)) > 1]


# --- attributes


def _number(name: str, settings: tuple[str, ...], values: tuple[float, ...]) -> Mutate:
    def mutate(editor: IREditor, chance: random.Random) -> Mutation:
        options = [
            (layer, setting)
            for layer in editor.operations
            for setting in settings
            if editor.setting(layer, setting) is not None
        ]
        layer, setting = pick(chance, options)
        editor.set(layer, setting, chance.choice(values))
        return mutation(name, _names(editor, layer), "attribute", "constant")

    return mutate


def _choice(name: str, setting: str, values: tuple[str, ...], *types: str) -> Mutate:
    def mutate(editor: IREditor, chance: random.Random) -> Mutation:
        layers = [e for e in editor.of(*types) if editor.setting(e, setting) in values]
        layer = pick(chance, layers)
        now = editor.setting(layer, setting)
        editor.set(layer, setting, chance.choice([each for each in values if each != now]))
        near = [name_of(each) for each in editor.inputs(layer)]
        kinds = ("attribute", "operator", "order", "extra", "missing", "operands", "weight")
        return mutation(name, [*_names(editor, layer), *near], *kinds)

    return mutate


def _axis(editor: IREditor, chance: random.Random) -> Mutation:
    layers = _moving(editor, editor.of("SoftMax", "LogSoftmax", "Concat", "GatherElements"))
    layer = pick(chance, layers)
    rank, now = len(editor.shape(layer)), int(str(editor.setting(layer, "axis")))
    others = [axis for axis in range(rank) if axis != now % rank]
    editor.set(layer, "axis", pick(chance, others))
    return mutation("axis", _names(editor, layer), "attribute", "order", "wiring")


def _reduced_axes(editor: IREditor, chance: random.Random) -> Mutation:
    layers = [e for e in editor.of(*_REDUCTIONS, "MVN") if editor.constant(e, 1) is not None]
    layer = pick(chance, layers)
    source = editor.read(layer, 0)
    assert source is not None
    rank = len(editor.shape(source))
    axes = np.array(editor.constant(layer, 1)).reshape(-1)
    others = [axis for axis in range(rank) if axis not in axes % max(rank, 1)]
    axes[chance.randrange(len(axes))] = pick(chance, others)
    editor.put(layer, 1, np.sort(axes))
    return mutation("reduced axes", _names(editor, layer), "constant", "attribute", "operator")


def _pads(editor: IREditor, chance: random.Random) -> Mutation:
    layers = [e for e in editor.operations if editor.setting(e, "pads_begin") is not None]
    layer = pick(chance, layers)
    before, after = (
        [int(size) for size in str(editor.setting(layer, name)).split(",")]
        for name in ("pads_begin", "pads_end")
    )
    place = pick(chance, [axis for axis, size in enumerate(after) if size > 0])
    before[place], after[place] = before[place] + 1, after[place] - 1
    editor.set(layer, "pads_begin", ",".join(map(str, before)))
    editor.set(layer, "pads_end", ",".join(map(str, after)))
    return mutation("pads", _names(editor, layer), "attribute", "constant")


def _permutation(editor: IREditor, chance: random.Random) -> Mutation:
    layer = pick(chance, [e for e in editor.of("Transpose") if editor.constant(e, 1) is not None])
    perm = np.array(editor.constant(layer, 1))
    first, second = chance.sample(range(len(perm)), 2)
    perm[[first, second]] = perm[[second, first]]
    editor.put(layer, 1, perm)
    return mutation("permutation", _names(editor, layer), "attribute", "order", "wiring")


def _slice(editor: IREditor, chance: random.Random) -> Mutation:
    stored = [e for e in editor.of("Slice") if editor.constant(e, 1) is not None]
    layer = pick(chance, _moving(editor, stored))
    step = chance.choice([1, -1])
    editor.put(layer, 1, np.array(editor.constant(layer, 1)) + step)
    ends = editor.constant(layer, 2)
    if ends is None:
        raise NothingToMutateError
    editor.put(layer, 2, np.where(np.abs(ends) < 1 << 30, ends + step, ends))
    return mutation("slice", _names(editor, layer), "constant", "wiring", "order", "attribute")


def _stored_number(editor: IREditor, chance: random.Random) -> Mutation:
    options = []
    for layer in _moving(editor, editor.of(*_BINARY, "Power")):
        for place in (0, 1):
            values = editor.constant(layer, place)
            if values is not None and values.size == 1 and values.dtype == np.float32:
                options.append((layer, place, values))
    layer, place, values = pick(chance, options)
    made = editor.put(layer, place, np.full_like(values, chance.choice([0.3, 1.7, 3.0])))
    kinds = ("attribute", "constant", "operator", "weight", "extra")  # 1 is nothing
    return mutation("number", [*_names(editor, layer), made], *kinds)


# --- operations


def _another(name: str, family: tuple[str, ...]) -> Mutate:
    def mutate(editor: IREditor, chance: random.Random) -> Mutation:
        layer = pick(chance, _moving(editor, editor.of(*family)))
        layer.set("type", chance.choice([e for e in family if e != layer.get("type")]))
        layer.set("version", "opset4" if layer.get("type") in ("HSwish", "SoftPlus", "ReduceL2")
                  else "opset1")  # fmt: skip
        kinds = ("operator", "missing", "extra", "constant")
        return mutation(name, [*_names(editor, layer), *_near(editor, layer)], *kinds)

    return mutate


def _left_out(editor: IREditor, chance: random.Random) -> Mutation:
    options = [
        (layer, source)
        for layer in _moving(editor, editor.operations)
        for source in editor.inputs(layer)
        if editor.shape(source) == editor.shape(layer)
        and not any(each.get("type") == "Result" for each in editor.readers(layer))
    ]
    layer, source = pick(chance, options)
    near = [*_near(editor, layer), *_names(editor, source)]
    editor.move_readers(layer, source)
    kinds = ("missing", "operator", "wiring", "extra", "order", "weight")
    return mutation("left out", [*_names(editor, layer), *near], *kinds)


def _inserted(name: str, kind: str, *constants: np.ndarray) -> Mutate:
    def mutate(editor: IREditor, chance: random.Random) -> Mutation:
        layer = pick(chance, _moving(editor, editor.of(*_COMPUTES)))
        near = [*_names(editor, layer), *_near(editor, layer)]
        made = editor.insert_after(layer, kind, *constants)
        return mutation(name, [name_of(made), *near], "extra", "operator", "constant")

    return mutate


# --- wiring


def _operands(editor: IREditor, chance: random.Random) -> Mutation:
    places = {"Subtract": (0, 1), "Divide": (0, 1), "MatMul": (0, 1), "Select": (1, 2)}
    layer = pick(chance, _moving(editor, editor.of(*places)))
    first, second = places[str(layer.get("type"))]
    one, other = editor.read(layer, first), editor.read(layer, second)
    if one is None or other is None or one is other:
        raise NothingToMutateError
    editor.wire(layer, first, other)
    editor.wire(layer, second, one)
    return mutation("operands", _names(editor, layer), "operands", "wiring", "order", "constant")


def _another_value(editor: IREditor, chance: random.Random) -> Mutation:
    made: list[Element] = editor.of("Parameter")
    options = []
    for layer in editor.operations:
        for place in (0, 1):
            source = editor.read(layer, place)
            if source is not None and len(editor.shape(source)) > 1:
                same = [e for e in made if editor.shape(e) == editor.shape(source)]
                options += [(layer, place, other) for other in same if other is not source]
        made.append(layer)
    layer, place, other = pick(chance, options)
    editor.wire(layer, place, other)
    kinds = ("wiring", "operands", "extra", "missing")
    return mutation("another value", [*_names(editor, layer), *_names(editor, other)], *kinds)


def _outputs(editor: IREditor, chance: random.Random) -> Mutation:
    results = editor.of("Result")
    pairs = [
        (a, b, one, other)
        for place, a in enumerate(results)
        for b in results[place + 1 :]
        if (one := editor.read(a, 0)) is not None
        and (other := editor.read(b, 0)) is not None
        and editor.shape(one) == editor.shape(other)
    ]
    first, second, one, other = pick(chance, pairs)
    names = [editor.value(one), editor.value(other)]
    exchanged = zip((one, other), (first, second), reversed(names), strict=True)
    for layer, result, name in exchanged:
        port = layer.find("output/port")
        assert port is not None
        port.set("names", name)
        if "output_names" in result.attrib:
            result.set("output_names", name)
    return mutation("exchanged outputs", names, "outputs")


# --- weights


def _weight(name: str, change: ChangeWeight) -> Mutate:
    def mutate(editor: IREditor, chance: random.Random) -> Mutation:
        layer, place, values = pick(chance, _weights(editor))
        after = changed_weight(values, change, chance)
        made = editor.put(layer, place, after)
        return mutation(name, [*_names(editor, layer), made], "weight", "exchanged", "order")

    return mutate


def _weights(editor: IREditor) -> list[tuple[Element, int, np.ndarray]]:
    found = []
    for layer in editor.of(*_WEIGHTS):
        for place in _WEIGHTS[str(layer.get("type"))]:
            values = editor.constant(layer, place)
            if values is not None and values.dtype == np.float32 and values.size > 3:
                found.append((layer, place, values))
    return found


def _exchanged_weights(editor: IREditor, chance: random.Random) -> Mutation:
    one, other = pick(chance, exchangeable(_weights(editor)))
    names = []
    for (layer, place, _), values in ((one, other[2]), (other, one[2])):
        names += [*_names(editor, layer), editor.put(layer, place, values)]
    return mutation("exchanged weights", names, "exchanged", "weight", "operands")


MUTATIONS: tuple[Mutate, ...] = (
    _number("epsilon", ("eps", "epsilon"), (1e-2, 1e-1)),
    _number("alpha", ("alpha",), (0.3, 0.7, 2.0)),
    _choice("gelu mode", "approximation_mode", ("ERF", "TANH"), "Gelu"),
    _choice("transposed operand", "transpose_b", ("true", "false"), "MatMul"),
    _choice("count of padding", "exclude-pad", ("true", "false"), "AvgPool"),
    _choice(
        "corners",
        "coordinate_transformation_mode",
        ("align_corners", "half_pixel", "asymmetric"),
        "Interpolate",
    ),
    _choice("direction", "direction", ("forward", "reverse"), "GRUSequence", "LSTMSequence"),
    _axis,
    _reduced_axes,
    _pads,
    _permutation,
    _slice,
    _stored_number,
    _another("activation", _ACTIVATIONS),
    _another("unary", _UNARY),
    _another("binary", _BINARY),
    _another("reduction", _REDUCTIONS),
    _left_out,
    _inserted("extra activation", "ReLU"),
    _inserted("extra scale", "Multiply", np.full((1,), 1.25, np.float32)),
    _inserted("extra tanh", "Tanh"),
    _operands,
    _another_value,
    _outputs,
    *(_weight(name, change) for name, change in WEIGHT_FAULTS.items()),
    _exchanged_weights,
)

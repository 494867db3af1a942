"""Other forms of operations of whole numbers, in widths that kernels keep which compute them in
others: narrow ones in int32, cut off, and large ones without float32.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, Values
from convkit.worker.graph.operators.node_builder import NodeBuilder, element_type

# What the texts of forms begin with: the line that computes the node's value.
LINE = ("Write this line ", "Compute this line ")
# Bits of whole numbers that several runtimes compute in another width, and split into for maxima.
_NARROW, _HALF = 16, 4096
_SIGNS: Mapping[str, str] = {"Add": "+", "Sub": "-", "Mul": "*", "BitShift": "<<", "Neg": "-"}
# The opsets from which BitwiseAnd exists and reductions read their axes.
_BITWISE, _AXES_READ, _SUM_AXES_READ = 18, 18, 13
# What may be computed of remainders as well as of the numbers.
_MODULAR = ("Add", "Sub", "Mul")
# Factors that a power is written with at most.
_MOST_FACTORS = 16
# What else a maximum is taken of.
_BOUNDS = ("z", "a", "b")
# Reductions.
_EXTREMES = ("ReduceMax", "ReduceMin")


@dataclasses.dataclass(frozen=True)
class Form:
    """Nodes that compute a node's first result, from the same values, and what they are called in
    the model's code.
    """

    nodes: tuple[onnx.NodeProto, ...]
    constants: Mapping[str, np.ndarray]
    text: str


def opset_of(graph: Graph) -> int:
    return dict(graph.opsets).get("", 0)


def made(builder: NodeBuilder, text: str) -> Form:
    return Form(tuple(builder.nodes), builder.constants, text)


def _wrapped(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """Arithmetic of narrow whole numbers in int32, and what the type has no room for cut off."""
    dtype = known[node.output[0]].dtype
    sign = _SIGNS.get(node.op_type)
    if sign is None or not 8 * dtype.itemsize <= _NARROW:
        return None
    built, bits = NodeBuilder(node.output[0]), 8 * dtype.itemsize
    wide = [
        built.write("Cast", each, inner=f"wide {place}", to=onnx.TensorProto.INT32)
        for place, each in enumerate(node.input)
    ]
    operands = [f"{letter}.int()" for letter in "xz"[: len(wide)]]
    code = f"({f' {sign} '.join(operands)})" if len(wide) > 1 else f"{sign}{operands[0]}"
    if node.op_type == "BitShift":
        if any(each.name == "direction" and each.s != b"LEFT" for each in node.attribute):
            return None
        wide[1] = built.write("Pow", np.array(2, np.int32), wide[1], inner="power")
        code = "(x.int() * 2 ** z.int())"
    kind = "Mul" if node.op_type == "BitShift" else node.op_type
    result = built.write(kind, *wide, inner="result")
    half, mask, beyond = (
        np.array(each, np.int32) for each in (1 << (bits - 1), (1 << bits) - 1, 1 << bits)
    )
    if is_signed := dtype.kind == "i":
        result = built.write("Add", result, half, inner="moved")
    if opset_of(graph) >= _BITWISE:
        result = built.write("BitwiseAnd", result, mask, inner="low")
    else:
        result = built.write("Mod", result, beyond, inner="low")
    if is_signed:
        result = built.write("Sub", result, half, inner="back")
    built.write("Cast", result, to=element_type(dtype))
    cut = f"(({code} + {half}) & {mask}) - {half}" if is_signed else f"{code} & {mask}"
    return made(built, f"Write this line as y = ({cut}).to(torch.{dtype.name})")


def _remainder(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A remainder of whole numbers from their quotient."""
    if node.op_type != "Mod":
        return None
    built, (x, z) = NodeBuilder(node.output[0]), node.input
    zero = known[node.output[0]].dtype.type(0)
    is_truncated = any(each.name == "fmod" and each.i for each in node.attribute)
    quotient = built.write("Div", x, z, inner="quotient")
    product = built.write("Mul", quotient, z, inner="product")
    if is_truncated:
        built.write("Sub", x, product)
    else:
        rest = built.write("Sub", x, product, inner="rest")
        apart = built.write(
            "Xor",
            built.write("Less", rest, zero, inner="below"),
            built.write("Less", z, zero, inner="divisor below"),
            inner="apart",
        )
        none = built.write("Equal", rest, zero, inner="none")
        some = built.write("And", apart, built.write("Not", none, inner="some"), inner="moves")
        built.write("Add", rest, built.write("Where", some, z, zero, inner="added"))
    mode = "trunc" if is_truncated else "floor"
    text = f"Write this line as y = x - torch.div(x, z, rounding_mode='{mode}') * z"
    return made(built, text)


def reduced_axes(
    graph: Graph, node: onnx.NodeProto, known: Values, read_from: int
) -> tuple[list[int], bool] | None:
    """Return the axes of a reduction, and whether it keeps them."""
    keeps = next((bool(each.i) for each in node.attribute if each.name == "keepdims"), True)
    given = next((list(each.ints) for each in node.attribute if each.name == "axes"), None)
    if len(node.input) > 1 and node.input[1] and opset_of(graph) >= read_from:
        given = known[node.input[1]].tolist()
    rank = known[node.input[0]].ndim
    axes = sorted(each % rank for each in (range(rank) if given is None else given))
    return (axes, keeps) if axes else None


def _squeezed(built: NodeBuilder, value: str, axes: list[int], opset: int) -> None:
    if opset >= _SUM_AXES_READ:
        built.write("Squeeze", value, axes)
    else:
        built.write("Squeeze", value, axes=axes)


def _total(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A sum of whole numbers as the end of a running sum."""
    found = (
        reduced_axes(graph, node, known, _SUM_AXES_READ) if node.op_type == "ReduceSum" else None
    )
    if found is None:
        return None
    (axes, keeps), built, value = found, NodeBuilder(node.output[0]), node.input[0]
    for axis in axes:
        running = built.write("CumSum", value, np.array(axis), inner=f"running {axis}")
        last = axis == axes[-1] and keeps
        value = built.write("Gather", running, [-1], inner="" if last else f"{axis}", axis=axis)
    if not keeps:
        _squeezed(built, value, axes, opset_of(graph))
    text = "Write this line as y = x.cumsum(dim).select(dim, -1)"
    return made(built, text + (", for one dimension after the other" if axes[1:] else ""))


def _extreme(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """The largest of whole numbers by their upper, then by their lower digits."""
    found = reduced_axes(graph, node, known, _AXES_READ) if node.op_type in _EXTREMES else None
    if found is None:
        return None
    (axes, keeps), built, x = found, NodeBuilder(node.output[0]), node.input[0]
    half = known[x].dtype.type(_HALF)
    beyond = half if node.op_type == "ReduceMin" else -half
    read = opset_of(graph) >= _AXES_READ

    def along(value: str, inner: str) -> str:
        operands = (value, axes) if read else (value,)
        return built.write(
            node.op_type, *operands, inner=inner, keepdims=1, axes=None if read else axes
        )

    upper = built.write("Div", x, half, inner="upper")
    low = built.write("Sub", x, built.write("Mul", upper, half, inner="whole"), inner="lower")
    most = along(upper, "most")
    same = built.write("Equal", upper, most, inner="same")
    rest = along(built.write("Where", same, low, beyond, inner="rest"), "most of the rest")
    whole = built.write("Mul", most, half, inner="scaled")
    result = built.write("Add", whole, rest, inner="" if keeps else "sum")
    if not keeps:
        _squeezed(built, result, axes, opset_of(graph))
    torch_name = "amin" if node.op_type == "ReduceMin" else "amax"
    text = (
        f"Write this line as u = torch.div(x, {_HALF}, rounding_mode='trunc');"
        f" m = u.{torch_name}(dim, keepdim=True);"
        f" y = m * {_HALF} + torch.where(u == m, x - u * {_HALF}, {int(beyond)})"
        f".{torch_name}(dim, keepdim=True)"
    )
    return made(built, text)


def _product(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A matrix product of whole numbers as a running sum of products."""
    x, z = (*node.input, "", "")[:2]
    if node.op_type != "MatMul" or known[x].ndim < 1 or known[z].ndim != 2:
        return None
    built = NodeBuilder(node.output[0])
    columns = built.write("Unsqueeze", x, [-1], inner="columns")
    products = built.write("Mul", columns, z, inner="products")
    running = built.write("CumSum", products, np.array(known[x].ndim - 1), inner="running")
    built.write("Gather", running, np.array(-1), axis=known[x].ndim - 1)
    text = "Write this line as y = (x.unsqueeze(-1) * z).cumsum(-2).select(-2, -1)"
    return made(built, text) if opset_of(graph) >= _SUM_AXES_READ else None


def _power(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A power of whole numbers as a product."""
    if node.op_type != "Pow":
        return None
    (x, z), dtype = node.input, known[node.input[0]].dtype
    most = int(known[z].max(initial=0))
    if not 1 < most <= _MOST_FACTORS or known[z].min(initial=0) < 0:
        return None
    built = NodeBuilder(node.output[0])
    one, result = np.array(1, dtype), ""
    for count in range(most):
        more = built.write("Greater", z, np.array(count, known[z].dtype), inner=f"more {count}")
        factor = built.write("Where", more, x, one, inner=f"factor {count}")
        inner = "" if count + 1 == most else f"product {count}"
        result = built.write("Mul", result, factor, inner=inner) if result else factor
    text = (
        f"Write this line as y = torch.ones_like(x); for k in range({most}):"
        " y = y * torch.where(z > k, x, 1), z the exponent"
    )
    return made(built, text)


def _side(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A sign or a magnitude by comparisons with zero."""
    if node.op_type not in ("Sign", "Abs"):
        return None
    (x,) = node.input
    zero, one = (np.array(each, known[x].dtype) for each in (0, 1))
    built = NodeBuilder(node.output[0])
    below = built.write("Less", x, zero, inner="below")
    if node.op_type == "Abs":
        built.write("Where", below, built.write("Sub", zero, x, inner="turned"), x)
        return made(built, "Write this line as y = torch.where(x < 0, 0 - x, x)")
    above = built.write("Greater", x, zero, inner="above")
    negative = built.write("Where", below, -one, zero, inner="negative")
    built.write("Where", above, one, negative)
    return made(built, "Write this line as y = (x > 0).to(x.dtype) - (x < 0).to(x.dtype)")


def remainders_first(graph: Graph, name: str, values: Values) -> dict[str, Form]:
    """Return forms of the remainders, by their results, that all readers of sums and products of
    whole numbers take in the end: with the remainder of each operand taken first, so that no number
    on the way is larger than the divisor's square. Empty if something else reads them.
    """
    forms, pending, known = dict[str, Form](), [name], {**graph.constants, **values}
    while pending:
        value = pending.pop()
        for index in graph.readers.get(value, ()):
            node = graph.nodes[index]
            if node.op_type in _MODULAR:
                pending.append(node.output[0])
            elif node.op_type == "Mod" and not node.attribute and node.input[0] == value:
                built = NodeBuilder(node.output[0])
                _reduced(graph, built, value, node.input[1], known, "")
                text = "Write this line as y = ((x % m) * (z % m)) % m, m the divisor behind it"
                forms[node.output[0]] = made(built, text)
            else:
                return {}
        if value in graph.outputs:
            return {}
    return forms


def _reduced(
    graph: Graph, built: NodeBuilder, value: str, divisor: str, known: Values, inner: str
) -> str:
    """Write a value's remainder, from those of what it is a sum or a product of."""
    index = graph.producers.get(value)
    node = graph.nodes[index] if index is not None else None
    if node is not None and node.op_type in _MODULAR:
        parts = [
            _reduced(graph, built, each, divisor, known, f"{inner}{place}")
            for place, each in enumerate(node.input)
        ]
        value = built.write(node.op_type, *parts, inner=f"combined {inner}")
    if np.ndim(known[divisor]) == 0 and value in graph.constants:
        return built.constant(f"known {inner}", np.mod(known[value], known[divisor]))
    return built.write("Mod", value, divisor, inner=f"remainder {inner}" if inner else "")


def _chosen(_graph: Graph, node: onnx.NodeProto, _known: Values) -> Form | None:
    """The larger or smaller of whole numbers by a comparison."""
    if node.op_type not in ("Max", "Min", "Clip"):
        return None
    built, (result, *others) = NodeBuilder(node.output[0]), node.input
    is_clip = node.op_type == "Clip"
    signs = ("<", ">") if is_clip else ("<" if node.op_type == "Max" else ">",) * len(_BOUNDS)
    names = ("low", "high") if is_clip else _BOUNDS
    steps = [each for each in zip(signs, names, others, strict=False) if each[-1]]
    if not steps or len(others) > len(names):
        return None
    code, read = [], "x"
    for sign, name, bound in steps:
        is_last = bound is steps[-1][-1]
        kind = "Less" if sign == "<" else "Greater"
        beyond = built.write(kind, result, bound, inner=f"beyond {name}")
        result = built.write(
            "Where", beyond, bound, result, inner="" if is_last else f"within {name}"
        )
        code.append(f"y = torch.where({read} {sign} {name}, {name}, {read})")
        read = "y"
    return made(built, f"Write this line as {'; '.join(code)}")


# Each returns a form of a node, None if it has no such form.
WHOLE_FORMS: tuple[Callable[[Graph, onnx.NodeProto, Values], Form | None], ...] = (
    _wrapped,
    _remainder,
    _total,
    _extreme,
    _product,
    _power,
    _side,
    _chosen,
)

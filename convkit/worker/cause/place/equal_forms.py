"""Other forms of a node that compute the same, each with the code that says it in torch: whole
numbers in other widths, an operator by the ONNX standard's own definition, float64.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, Values, with_names
from convkit.worker.cause.place.resize_as_products import resize_as_products
from convkit.worker.cause.place.whole_number_forms import (
    WHOLE_FORMS,
    Form,
    made,
    opset_of,
    reduced_axes,
)
from convkit.worker.graph.operators.node_builder import NodeBuilder, element_type

# The ONNX standard's definitions, as torch's code: `x` is what the line reads, `y` its result.
_DEFINITIONS: Mapping[str, str] = {
    "Softmax": "e = torch.exp(x - x.amax(dim, keepdim=True)); y = e / e.sum(dim, keepdim=True)",
    "LogSoftmax": (
        "z = x - x.amax(dim, keepdim=True); y = z - z.exp().sum(dim, keepdim=True).log()"
    ),
    "LayerNormalization": (
        "z = x - x.mean(dims, keepdim=True);"
        " y = z / (z.square().mean(dims, keepdim=True) + eps).sqrt() * weight + bias"
    ),
    "GroupNormalization": (
        "z = x.reshape(len(x), groups, -1); z = z - z.mean(2, keepdim=True);"
        " z = z / (z.square().mean(2, keepdim=True) + eps).sqrt();"
        " y = z.reshape(x.shape) * weight + bias, with weight and bias along dimension 1"
    ),
    "Gelu": "y = 0.5 * x * (1 + torch.erf(x * 0.5 ** 0.5))",
    "HardSwish": "y = x * (x / 6 + 0.5).clamp(0, 1)",
    "HardSigmoid": "y = (x * alpha + beta).clamp(0, 1)",
    "Mish": "y = x * torch.tanh(torch.log(1 + torch.exp(x)))",
    "Softplus": "y = torch.log(1 + torch.exp(x))",
    "Softsign": "y = x / (1 + x.abs())",
    "Elu": "y = torch.where(x < 0, alpha * (x.exp() - 1), x)",
    "Celu": "y = x.clamp(min=0) + (alpha * ((x / alpha).exp() - 1)).clamp(max=0)",
    "Selu": "y = scale * torch.where(x <= 0, alpha * (x.exp() - 1), x)",
    "PRelu": "y = torch.where(x < 0, weight * x, x)",
    "LeakyRelu": "y = torch.where(x < 0, slope * x, x)",
    "Clip": "y = torch.where(x < low, low, torch.where(x > high, high, x))",
    "Shrink": "y = torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, 0 * x))",
    "ReduceL1": "y = x.abs().sum(dim)",
    "ReduceL2": "y = x.square().sum(dim).sqrt()",
    "ReduceSumSquare": "y = x.square().sum(dim)",
    "ReduceLogSum": "y = x.sum(dim).log()",
    "ReduceLogSumExp": "m = x.amax(dim, keepdim=True); y = m + (x - m).exp().sum(dim).log()",
}

# Functions that the standard has no definition for, as formulas of `x` and the number 1.
_FORMULAS: Mapping[str, tuple[str, str]] = {
    "Sigmoid": ("Reciprocal(Add(Exp(Neg(x)), one))", "y = 1 / (1 + torch.exp(-x))"),
    "Tanh": (
        "Div(Sub(Exp(Add(x, x)), one), Add(Exp(Add(x, x)), one))",
        "e = torch.exp(2 * x); y = (e - 1) / (e + 1)",
    ),
    "Softplus": (
        "Add(Max(x, Sub(x, x)), Log(Add(Exp(Neg(Abs(x))), one)))",
        "y = x.clamp(min=0) + torch.log(1 + torch.exp(-x.abs()))",
    ),
}

# Sums that may be taken in steps, and the opset from which they read their axes.
AXES_READ_FROM: Mapping[str, int] = {"ReduceSum": 13, "ReduceMean": 18}


# Values per sum: that many rounded additions, one after another, lose 4 digits of float32's 7.
_MANY = 1 << 14


def many_added(node: onnx.NodeProto, values: Values) -> int | None:
    """Return how many float32 values a sum or mean adds up for each result, if they are so many
    that their roundings add up; else None.
    """
    if node.op_type not in AXES_READ_FROM or node.domain:
        return None
    taken, result = values[node.input[0]], values[node.output[0]]
    count = taken.size // result.size if result.size and taken.dtype == np.float32 else 0
    return count if count >= _MANY else None


def forms_of(graph: Graph, node: onnx.NodeProto, values: Values) -> Iterator[Form]:
    """Yield other forms of a node whose inputs and first result are among the `values`, whose types
    and dimensions decide which there are.
    """
    name = node.output[0]
    inner = any(each.type == onnx.AttributeProto.GRAPH for each in node.attribute)
    if inner or name not in values or any(each and each != name for each in node.output[1:]):
        return
    known = {**graph.constants, **values}
    if any(each and each not in known for each in node.input):
        return
    kind = values[name].dtype.kind
    floats = (
        *(_defined, _normalized, resize_as_products, _in_steps),
        *(_formula, _in_float64, _formula_in_float64),
    )
    makers = WHOLE_FORMS if kind in "iu" else floats if kind == "f" else (_truth,)
    for make in makers:
        if (form := make(graph, node, known)) is not None:
            yield form


def with_forms(graph: Graph, forms: Mapping[str, Form]) -> Graph:
    """Return the graph with the forms in place of the nodes that compute these values."""
    nodes, constants = list[onnx.NodeProto](), dict[str, np.ndarray]()
    for node in graph.nodes:
        form = forms.get(node.output[0]) if node.output else None
        nodes += [node] if form is None else form.nodes
        constants |= {} if form is None else form.constants
    return graph.with_nodes(nodes, constants)


def working_form(
    graph: Graph, node: onnx.NodeProto, values: Values, is_right: Callable[[Graph], bool]
) -> Form | None:
    """Return the first form of a node that is right where it is tried; None if there is none."""
    name = node.output[0]
    return next(
        (
            each
            for each in forms_of(graph, node, values)
            if is_right(with_forms(graph, {name: each}))
        ),
        None,
    )


def _truth(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """The truth of numbers as a comparison, which is true for NaN."""
    if node.op_type != "Cast" or known[node.input[0]].dtype.kind != "f":
        return None
    built, zero = NodeBuilder(node.output[0]), np.array(0, known[node.input[0]].dtype)
    built.write("Not", built.write("Equal", node.input[0], zero, inner="zero"))
    return made(built, "Write this line as y = x != 0")


def _defined(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """An operator by the definition that the ONNX standard gives it."""
    if node.domain or node.op_type not in _DEFINITIONS:
        return None
    body = _definition(node, known, opset_of(graph))
    if body is None:
        return None
    given = [*node.input, *([""] * (len(body.input) - len(node.input)))]
    names = dict(zip(body.input, given, strict=True)) | dict(
        zip(body.output, node.output, strict=False)
    )
    own = {each: f"{node.output[0]}//{each}" for made in body.node for each in made.output if each}
    own |= names
    schema = onnx.defs.get_schema(node.op_type, opset_of(graph), "")
    defaults = {name: each.default_value for name, each in schema.attributes.items()}
    attributes = {name: each for name, each in defaults.items() if each.name}
    attributes |= {each.name: each for each in node.attribute}
    nodes = [_bound(with_names(each, own), attributes) for each in body.node]
    if any(each is None for each in nodes):
        return None
    kept = tuple(each for each in nodes if each is not None)
    return Form(kept, {}, f"Write this line by its definition, {_DEFINITIONS[node.op_type]}")


def _normalized(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """Instance normalization by a mean, and then the mean of squares of what is left, each taken
    along one axis after the other: no sum is longer than an axis.
    """
    if node.domain or node.op_type != "InstanceNormalization":
        return None
    given, rank = node.input[0], known[node.input[0]].ndim
    epsilon = next((each.f for each in node.attribute if each.name == "epsilon"), 1e-5)
    built = NodeBuilder(node.output[0])

    def mean(value: str, word: str) -> str:
        for axis in range(rank - 1, 1, -1):
            read = opset_of(graph) >= AXES_READ_FROM["ReduceMean"]
            operands, axes = ((value, [axis]), None) if read else ((value,), [axis])
            inner = f"{word} {axis}"
            value = built.write("ReduceMean", *operands, inner=inner, keepdims=1, axes=axes)
        return value

    def along_channels(value: str, word: str) -> str:
        shape = [1, -1, *[1] * (rank - 2)]
        return built.write("Reshape", value, shape, inner=word)

    centred = built.write("Sub", given, mean(given, "mean"), inner="centred")
    variance = mean(built.write("Mul", centred, centred, inner="squares"), "variance")
    least = np.array(epsilon, known[given].dtype)
    root = built.write("Sqrt", built.write("Add", variance, least, inner="raised"), inner="root")
    unit = built.write("Div", centred, root, inner="unit")
    scaled = built.write("Mul", unit, along_channels(node.input[1], "weight"), inner="scaled")
    built.write("Add", scaled, along_channels(node.input[2], "bias"))
    text = (
        "Write this line with a mean along one dimension after the other,"
        " m = lambda x: x.mean(-1, keepdim=True).mean(-2, keepdim=True) and so on for each"
        " dimension behind the channels; z = x - m(x);"
        " y = z / (m(z * z) + eps).sqrt() * weight + bias, with weight and bias along dimension 1"
    )
    return made(built, text)


def _definition(node: onnx.NodeProto, known: Values, opset: int) -> "onnx.FunctionProto | None":
    """Return the standard's body of an operator for these types; None if it has none."""
    schema = onnx.defs.get_schema(node.op_type, opset, "")
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [_type_of(known[each]) if each else b"" for each in node.input]
    since = max(each for each in schema.context_dependent_function_opset_versions if each <= opset)
    text = schema.get_context_dependent_function_with_opset_version(
        since, node.SerializeToString(), types
    )
    return onnx.FunctionProto.FromString(text)


def _type_of(values: np.ndarray) -> bytes:
    made = onnx.helper.make_tensor_type_proto(element_type(values.dtype), values.shape)
    return bytes(made.SerializeToString())


def _bound(
    node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]
) -> onnx.NodeProto | None:
    """Return a definition's node with the attributes that it takes from the operator itself; None
    if it needs one that is not set.
    """
    kept = []
    for each in node.attribute:
        if each.ref_attr_name:
            if each.ref_attr_name not in attributes:
                return None
            taken = onnx.AttributeProto()
            taken.CopyFrom(attributes[each.ref_attr_name])
            taken.name = each.name
            kept.append(taken)
        else:
            kept.append(each)
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    bound.attribute.extend(kept)
    return bound


def _in_steps(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A sum or mean over several axes, along the last of them first: each step adds up fewer."""
    found = None
    if node.op_type in AXES_READ_FROM:
        found = reduced_axes(graph, node, known, AXES_READ_FROM[node.op_type])
    if found is None or not found[0][1:]:
        return None
    (axes, keeps), built = found, NodeBuilder(node.output[0])
    read = opset_of(graph) >= AXES_READ_FROM[node.op_type]

    def along(value: str, which: list[int], inner: str, *, keepdims: bool) -> str:
        operands = (value, which) if read else (value,)
        given = None if read else which
        return built.write(node.op_type, *operands, inner=inner, keepdims=int(keepdims), axes=given)

    rows = along(node.input[0], axes[-1:], "rows", keepdims=True)
    along(rows, axes, "", keepdims=keeps)
    name = "sum" if node.op_type == "ReduceSum" else "mean"
    kept = ", keepdim=True" if keeps else ""
    text = (
        f"Write this line as y = x.{name}({axes[-1]}, keepdim=True).{name}({tuple(axes)}{kept}),"
        " which adds up in two steps"
    )
    return made(built, text)


def _formula(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A function by its formula."""
    if node.domain or node.op_type not in _FORMULAS:
        return None
    formula, code = _FORMULAS[node.op_type]
    built, given = NodeBuilder(node.output[0]), node.input[0]
    built.compute(formula, x=given, one=np.array(1, known[given].dtype))
    return made(built, f"Write this line by its formula, {code}")


def _formula_in_float64(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A function by its formula, which is computed in float64."""
    if node.domain or node.op_type not in _FORMULAS:
        return None
    if known[node.output[0]].dtype != np.float32:
        return None
    formula, code = _FORMULAS[node.op_type]
    built = NodeBuilder(node.output[0])
    wide = built.write("Cast", node.input[0], inner="wide", to=onnx.TensorProto.DOUBLE)
    result = built.compute(formula, inner="result", x=wide, one=np.array(1, np.float64))
    built.write("Cast", result, to=onnx.TensorProto.FLOAT)
    return made(
        built, f"Write this line by its formula in float64, {code}, with x.double(), then y.float()"
    )


def _in_float64(_graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """A node in float64, between casts."""
    floats = {each for each in node.input if each and known[each].dtype == np.float32}
    if known[node.output[0]].dtype != np.float32 or not floats:
        return None
    built = NodeBuilder(node.output[0])
    wide = {
        each: built.write("Cast", each, inner=f"wide {place}", to=onnx.TensorProto.DOUBLE)
        for place, each in enumerate(dict.fromkeys(node.input))
        if each in floats
    }
    result = built.inner("result")
    built.nodes.append(with_names(node, {**wide, node.output[0]: result}))
    built.write("Cast", result, to=onnx.TensorProto.FLOAT)
    text = (
        "Compute this line in float64, with .double() on what it reads and .float() on its result"
    )
    return made(built, text)

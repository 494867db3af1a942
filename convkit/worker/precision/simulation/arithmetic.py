"""The arithmetic of simulations, which is the same on every processor.

Sums and functions of onnxruntime's float32 kernels depend on the processor: on the width of its
vectors, on whether it fuses products and sums, on the number of threads. Rounded to float16
afterwards, such a difference in the last bit of float32 sometimes becomes one of float16. So a
simulation defines its own arithmetic:

- What IEEE 754 defines exactly (the sum, difference, product, quotient or square root of two
  numbers, comparisons, data movement, whole numbers) is computed in float32.
- Everything else (sums of products, reductions, exponentials, erf, tanh, normalizations) is
  computed in float64, and its result is rounded once to float32: processors differ by about 1e-16
  there, which rounding removes, except in about one of 1e8 results (the distance of two float64
  sums, about 1e-16 times the terms' share, against half a step of float32, 6e-8).
- Whole numbers are multiplied and summed exactly.

Overflow is that of float32, and denormal numbers are kept. Operators without a float64 kernel in
onnxruntime are written in terms of those that have one: convolutions as products of matrices, erf
as an exponential and a polynomial, recurrent layers as loops.
"""

import numpy as np
import onnx
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import all_names
from convkit.worker.graph.integer_products.product_rewriting import make_products_exact
from convkit.worker.graph.rewriting.convolution_products import write_convolution, write_transposed
from convkit.worker.graph.rewriting.node_writer import NodeWriter
from convkit.worker.graph.rewriting.opset_conversion import changes_meaning
from convkit.worker.graph.typed_graph import with_types
from convkit.worker.precision.simulation.kept_nan import keep_nan
from convkit.worker.precision.simulation.recurrent_layers import DOMAIN as RECURRENT
from convkit.worker.precision.simulation.recurrent_layers import (
    definitions as recurrent_definitions,
)
from convkit.worker.precision.simulation.recurrent_layers import write_recurrent

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE

# Operators that onnxruntime computes in float64 if their operands are.
_WIDE = frozenset(
    {
        "BatchNormalization", "Cos", "CumProd", "CumSum", "DFT", "Einsum", "Exp", "Gemm",
        "GridSample", "LayerNormalization", "Log", "LogSoftmax", "LpNormalization", "MatMul", "Pow",
        "RMSNormalization", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Sigmoid",
        "SimplifiedLayerNormalization", "Sin", "Softmax", "Sqrt", "Sum", "Tanh",
    }
)  # fmt: skip
# Since which opset: onnxruntime's earlier kernels have float32 only. They sum few products, each in
# the same order on every processor.
_WIDE_SINCE = {"GridSample": 20}
# Operators that ONNX itself defines by others.
_DEFINED_BY_OTHERS = frozenset(
    {
        "Attention", "Celu", "Elu", "Gelu", "GroupNormalization", "MeanVarianceNormalization",
        "Mish", "RotaryEmbedding", "Selu", "Softplus", "SwiGLU", "Swish",
    }
)  # fmt: skip
# The forms of operators that are written (Unsqueeze with axes as an input) exist from here on.
_LEAST_OPSET = 13
# (1 + 2x) exp(x^2) erfc(x) as a polynomial of t = (x - 3.75) / (x + 3.75), the form of Shepherd and
# Laframboise (Mathematics of Computation 36, 1981); fitted at 600 Chebyshev nodes. erf is within
# 1.1e-14 for every x >= 0.
_ERF_POLE = 3.75
_ERF_POLYNOMIAL = (
    1.237512630837793, -0.1402405985848882, 0.003585415492478705, 0.08227673845002414,
    -0.10880393037554004, 0.0923043218792076, -0.05869339555908307, 0.028362271535113615,
    -0.009746599580790988, 0.001755652139412173, 0.0002937900716900342, -0.0002902238968599531,
    5.147001448876037e-05, 2.2498626476123057e-05, -1.118030084742494e-05,
    -1.0893531465884846e-06, 1.5094902140705362e-06, 1.2752386739663122e-08,
    -1.2654267853488664e-07,
)  # fmt: skip


def with_defined_arithmetic(model: ir.Model) -> ir.Model:
    """Return a float32 model with known types in the arithmetic that this module defines.

    Values keep their names and types; nodes keep theirs, or have the metadata of the one they stand
    for. Operators of other domains stay as they are.
    """
    model = _with_definitions(model)
    make_products_exact(model)
    names = all_names(model)
    opset = model.opset_imports.get("", 0)
    for graph in list(model.graphs()):
        wide: dict[ir.Value, ir.Value] = {}
        for node in list(graph):
            if node.domain == "" and _computes(node):
                _rewrite(node, NodeWriter(node, names, opset), wide)
    if any(node.domain == RECURRENT for node in model.graph.all_nodes()):
        for function in recurrent_definitions(opset):
            model.functions[function.identifier()] = function
        model = with_types(model)
    return model


def _computes(node: ir.Node) -> bool:
    return bool(node.outputs) and node.outputs[0].dtype == _FLOAT


def _rewrite(node: ir.Node, writer: NodeWriter, wide: dict[ir.Value, ir.Value]) -> None:
    if node.op_type in _WIDE and writer.opset >= _WIDE_SINCE.get(node.op_type, 0):
        _widen(node, writer, wide)
    if writer.opset < _LEAST_OPSET:
        return
    match node.op_type:
        case "Conv":
            made = write_convolution(node, writer, lambda value: _wide(value, writer, wide))
            _give(writer, made)
        case "ConvTranspose":
            _give(writer, write_transposed(node, writer, lambda v: _wide(v, writer, wide)))
        case "Erf":
            _give(writer, _erf(writer, _wide(_operand(node), writer, wide)))
        case "InstanceNormalization":
            _give(writer, _instance_normalization(node, writer, wide))
        case "GlobalAveragePool":
            rank = len(node.inputs[0].shape) if _has_rank(node) else 0
            if rank > 2:
                axes = writer.integers(*range(2, rank))
                _give(writer, _mean(writer, _wide(_operand(node), writer, wide), axes))
        case "GRU" | "LSTM" | "RNN":
            results = write_recurrent(node, writer, lambda value: _wide(value, writer, wide))
            if results is not None:
                writer.replace([None if r is None else writer.cast(r, _FLOAT) for r in results])
        case "GlobalMaxPool" | "MaxPool" | "ReduceMax" | "ReduceMin":
            keep_nan(node, writer)
        case "Tan":
            operand = _wide(_operand(node), writer, wide)
            _give(writer, writer.compute("Div(Sin(x), Cos(x))", x=operand))


def _operand(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def _has_rank(node: ir.Node) -> bool:
    return node.inputs[0] is not None and node.inputs[0].shape is not None


def _give(writer: NodeWriter, result: ir.Value | None) -> None:
    """Put a float64 result, rounded to float32, in the node's place; None leaves the node."""
    if result is not None:
        writer.replace([writer.cast(result, _FLOAT)])


def _wide(value: ir.Value, writer: NodeWriter, wide: dict[ir.Value, ir.Value]) -> ir.Value:
    """Return a value in float64; values that are read several times are converted once."""
    if value.dtype != _FLOAT:
        return value
    if value not in wide:
        wide[value] = writer.cast(value, _DOUBLE)
    return wide[value]


def _widen(node: ir.Node, writer: NodeWriter, wide: dict[ir.Value, ir.Value]) -> None:
    """Let a node compute in float64, and round its results."""
    operands = [None if each is None else _wide(each, writer, wide) for each in node.inputs]
    kinds = [_DOUBLE if each.dtype == _FLOAT else each.dtype or _DOUBLE for each in node.outputs]
    outputs = [ir.Value(name=None, type=ir.TensorType(kind)) for kind in kinds]
    attributes = [
        ir.AttrInt64("stash_type", int(_DOUBLE)) if each.name == "stash_type" else each
        for each in node.attributes.values()
    ]
    made = ir.Node(
        "",
        node.op_type,
        operands,
        attributes,
        outputs=outputs,
        name=node.name,
        version=node.version,
    )
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    for before, after in zip(node.outputs, outputs, strict=True):
        after.name = writer.free(f"{before.name}.float64") if before.name else ""
    writer.replace(
        [
            writer.cast(after, _FLOAT) if after.dtype == _DOUBLE and before.name else after
            for before, after in zip(node.outputs, outputs, strict=True)
        ]
    )


def _erf(writer: NodeWriter, x: ir.Value) -> ir.Value:
    """Return erf(x) = sign(x) (1 - exp(-x^2) p(t) / (1 + 2|x|)), in float64."""
    # Beyond 6, erf is 1 in float64; an infinite x would make t NaN.
    size = writer.compute("Min(Abs(x), 6.0)", x=x)
    t = writer.compute("Div(Sub(size, pole), Add(size, pole))", size=size, pole=_ERF_POLE)
    total = writer.constant(np.array(_ERF_POLYNOMIAL[-1], np.float64))
    for coefficient in reversed(_ERF_POLYNOMIAL[:-1]):
        total = writer.compute("Add(Mul(total, t), c)", total=total, t=t, c=coefficient)
    return writer.compute(
        "Mul(Sign(x), Sub(1.0, Div(Mul(Exp(Neg(Mul(s, s))), total), Add(Add(s, s), 1.0))))",
        x=x,
        s=size,
        total=total,
    )


def _mean(writer: NodeWriter, x: ir.Value, axes: ir.Value) -> ir.Value:
    opset = writer.opset
    if opset >= 18:
        return writer.op("ReduceMean", [x, axes], keepdims=1)
    numbers = ir.convenience.get_const_tensor(axes)
    assert numbers is not None
    return writer.op("ReduceMean", [x], keepdims=1, axes=numbers.numpy().tolist())


def _instance_normalization(
    node: ir.Node, writer: NodeWriter, wide: dict[ir.Value, ir.Value]
) -> ir.Value:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias, per row and channel."""
    given = [each for each in node.inputs if each is not None]
    x, scale, bias = (_wide(each, writer, wide) for each in given)
    rows = writer.op("Reshape", [x, [0, 0, -1]])
    axis = writer.integers(2)
    centered = writer.op("Sub", [rows, _mean(writer, rows, axis)])
    return writer.compute(
        "Reshape(Add(Mul(Div(centered, Sqrt(Add(variance, epsilon))), Reshape(scale, [-1, 1])),"
        " Reshape(bias, [-1, 1])), Shape(x))",
        x=x,
        scale=scale,
        bias=bias,
        centered=centered,
        variance=_mean(writer, writer.op("Mul", [centered, centered]), axis),
        epsilon=node.attributes.get_float("epsilon", 1e-5),
    )


def _with_definitions(model: ir.Model) -> ir.Model:
    """Return a copy in which operators that ONNX defines by others are those others."""
    copy = model.clone()
    version = copy.opset_imports.get("", 0)
    found = False
    for node in list(copy.graph.all_nodes()):
        if node.domain == "" and node.op_type in _DEFINED_BY_OTHERS and _computes(node):
            definition = _definition(node, version)
            if definition is not None:
                number = str(len(copy.functions))
                definition.domain, definition.overload = "convkit.definitions", number
                definition.name = node.op_type
                node.domain, node.overload = definition.domain, number
                copy.functions[definition.identifier()] = definition
                found = True
    if not found:
        return copy
    copy.opset_imports["convkit.definitions"] = 1
    defined = with_types(copy)
    del defined.opset_imports["convkit.definitions"]
    return defined


def _definition(node: ir.Node, version: int) -> ir.Function | None:
    """Return ONNX's definition of a node's operator as a function, in the operators of an opset;
    None if it has none there.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        written = max(each for each in schema.function_opset_versions if each <= version)
        text = schema.get_function_with_opset_version(written)
    else:
        known = [e for e in schema.context_dependent_function_opset_versions if e <= version]
        if not known:
            return None
        kinds = [
            onnx.helper.make_tensor_type_proto(int(value.dtype), None).SerializeToString()
            if value is not None and value.dtype is not None
            else onnx.TypeProto().SerializeToString()
            for value in node.inputs
        ]
        text = schema.get_context_dependent_function_with_opset_version(
            max(known), ir.to_proto(node).SerializeToString(), kinds
        )
    proto = onnx.FunctionProto()
    proto.ParseFromString(text)
    if not proto.node:
        return None
    for name, attribute in schema.attributes.items():  # what the definition refers to
        if name not in node.attributes and attribute.default_value.type:
            node.attributes.add(ir.from_proto(attribute.default_value))
    del proto.output[len(node.outputs) :]  # further ones are not computed
    function = ir.from_proto(proto)
    before = function.opset_imports.get("", version)
    if any(changes_meaning(each, before, version) for each in function):
        return None
    function.opset_imports[""] = version
    return function

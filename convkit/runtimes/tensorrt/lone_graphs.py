"""Graphs of a single input or constant, to ask a parser about its type alone."""

import onnx
import onnx_ir as ir


def input_alone(value: onnx.ValueInfoProto, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of one input, with a model's opsets."""
    node = onnx.helper.make_node("Identity", [value.name], ["result"], name="alone")
    result = onnx.ValueInfoProto(name="result", type=value.type)
    graph = onnx.helper.make_graph([node], "alone", [value], [result])
    return onnx.helper.make_model(
        graph, opset_imports=proto.opset_import, ir_version=proto.ir_version
    )


def constant_alone(kind: int, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of one constant of an element type, with a model's opsets."""
    if kind == onnx.TensorProto.STRING:
        constant = onnx.helper.make_tensor("constant", kind, [1], [b"text"])
    else:
        content = bytes(max(1, ir.DataType(kind).bitwidth // 8))
        constant = onnx.helper.make_tensor("constant", kind, [1], content, raw=True)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["constant"], ["result"], name="alone")],
        "alone",
        [],
        [onnx.helper.make_tensor_value_info("result", kind, [1])],
        [constant],
    )
    return onnx.helper.make_model(
        graph, opset_imports=proto.opset_import, ir_version=proto.ir_version
    )

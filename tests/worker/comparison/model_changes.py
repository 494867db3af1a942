"""Changes to a model: those that mean nothing, and those that a comparison must locate."""

import numpy as np
import onnx
from compared_models import Change, attribute, node, note


def doc_strings(made: onnx.ModelProto) -> None:
    made.doc_string = made.graph.doc_string = "exported on a Tuesday"
    made.graph.node[0].doc_string = 'File "/home/me/model.py", line 3'
    made.graph.input[0].doc_string = made.graph.initializer[0].doc_string = "x"
    attribute(node(made, "leaky"), "alpha").doc_string = "x"


def producer_version(made: onnx.ModelProto) -> None:
    made.producer_version = "2.99"


def traces(made: onnx.ModelProto) -> None:
    for each in made.graph.node:
        note(each, "pkg.torch.onnx.stack_trace", 'File "/home/me/model.py", line 3')
        note(each, "convkit.source", "model.py:3")
        note(each, "namespace", ": Model/encoder: Encoder")
    note(made.graph, "pkg.torch.export.ExportedProgram.graph_signature", "...")
    note(made.graph.input[0], "pkg.torch.onnx.original_node_name", "arg0_1")


def initializer_order(made: onnx.ModelProto) -> None:
    reverse(made.graph.initializer)


def metadata_order(made: onnx.ModelProto) -> None:
    reverse(made.metadata_props)


def attribute_order(made: onnx.ModelProto) -> None:
    reverse(node(made, "branch").attribute)


def node_order(made: onnx.ModelProto) -> None:
    """Put another order of the same graph: the independent ones come first."""
    nodes = [node(made, name) for name in ("other", "leaky", "product", "sum", "branch")]
    copies = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del made.graph.node[:]
    made.graph.node.extend(copies)


def standard_domain(made: onnx.ModelProto) -> None:
    made.opset_import[0].domain = made.graph.node[0].domain = "ai.onnx"


def reverse(entries) -> None:
    copies = [type(each).FromString(each.SerializeToString()) for each in entries][::-1]
    assert len(copies) > 1
    del entries[:]
    entries.extend(copies)


def replaced_node(made: onnx.ModelProto) -> None:
    node(made, "sum").op_type = "Sub"


def changed_attribute(made: onnx.ModelProto) -> None:
    attribute(node(made, "leaky"), "alpha").f = 0.5


def removed_attribute(made: onnx.ModelProto) -> None:
    del node(made, "leaky").attribute[:]


def changed_metadata(made: onnx.ModelProto) -> None:
    made.metadata_props[0].value = '{"axes": [{"max": 5}]}'


def removed_metadata(made: onnx.ModelProto) -> None:
    del made.metadata_props[1]


def added_metadata(made: onnx.ModelProto) -> None:
    note(made, "license", "MIT")


def changed_module(made: onnx.ModelProto) -> None:
    node(made, "sum").metadata_props[0].value = "decoder.sum"


def changed_opset(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 18


def added_opset(made: onnx.ModelProto) -> None:
    made.opset_import.add(domain="com.microsoft", version=1)


def renamed_output(made: onnx.ModelProto) -> None:
    made.graph.output[1].name = node(made, "leaky").output[0] = "scores"


def swapped_outputs(made: onnx.ModelProto) -> None:
    reverse(made.graph.output)


def changed_input(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"


def changed_branch(made: onnx.ModelProto) -> None:
    (inner,) = attribute(node(made, "branch"), "then_branch").g.node
    inner.op_type = "Tanh"


def changed_constant(made: onnx.ModelProto) -> None:
    constant = attribute(node(made, "branch"), "else_branch").g.node[0]
    constant.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.array([0.75], np.float32)))


def rewired(made: onnx.ModelProto) -> None:
    node(made, "leaky").input[0] = "x"


def used_before_made(made: onnx.ModelProto) -> None:
    reverse(made.graph.node)


def repeated_output(made: onnx.ModelProto) -> None:
    made.graph.output.append(made.graph.output[1])


def axis_named_like_a_size(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "16"


def joined_inputs(made: onnx.ModelProto) -> None:
    node(made, "sum").input[:] = ["p, bias"]


def changed_producer(made: onnx.ModelProto) -> None:
    made.producer_name = "pytorch"


LOCATED: list[tuple[Change, str, str, str, str]] = [
    (replaced_node, "node", "sum", "Add(p, bias) -> s", "Sub(p, bias) -> s"),
    (changed_attribute, "attribute", "leaky.alpha", "0.25", "0.5"),
    (removed_attribute, "attribute", "leaky.alpha", "0.25", ""),
    (
        changed_metadata,
        "metadata",
        "convkit.contract",
        '{"axes": [{"max": 4}]}',
        '{"axes": [{"max": 5}]}',
    ),
    (removed_metadata, "metadata", "author", "somebody", ""),
    (added_metadata, "metadata", "license", "", "MIT"),
    (changed_module, "metadata", "sum convkit.module", "encoder.sum", "decoder.sum"),
    (changed_opset, "opset", "ai.onnx", "17", "18"),
    (added_opset, "opset", "com.microsoft", "", "1"),
    (renamed_output, "output", "z", "z: float32[batch, 16]", "scores: float32[batch, 16]"),
    (swapped_outputs, "output", "order", "y, z", "z, y"),
    (changed_input, "input", "x", "float32[batch, 16]", "float32[rows, 16]"),
    (changed_branch, "node", "branch.then_branch/inner", "Relu(s) -> a", "Tanh(s) -> a"),
    (changed_constant, "attribute", "branch.else_branch/factor.value", "0.5", "0.75"),
    (rewired, "node", "leaky", "LeakyRelu(q) -> z", "LeakyRelu(x) -> z"),
    (used_before_made, "node", "order", "in order", "a value is used before it is computed"),
    (repeated_output, "output", "order", "y, z", "y, z, z"),
    (axis_named_like_a_size, "input", "x", "float32[batch, 16]", "float32[batch, '16']"),
    (joined_inputs, "node", "sum", "Add(p, bias) -> s", "Add(p, bias) -> s"),
    (changed_producer, "model", "producer_name", "convkit", "pytorch"),
]

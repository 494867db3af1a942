"""Prepares a graph for onnxruntime's quantizers, which only see weights that are float32
initializers of named nodes.

The quantizers run on a copy in a separate folder, because they write next to their input.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_traversal import add_constant, all_names, constant_tensor, free_name
from convkit.worker.precision.simulation.float32_graph import load_float32

PREPARED_FILE = "float32.onnx"
# Bytes; smaller weights stay in the model.
_INLINE = 1024


@dataclasses.dataclass(frozen=True)
class PreparedGraph:
    """A prepared model's file, and by name the weights that it refers to without storing them."""

    file: Path
    weights: Mapping[str, ir.TensorProtocol]


def prepare_model(source: Path) -> tuple[ir.Model, bool]:
    """Load a model for quantization, as `load_float32` does, with every node named and weights as
    initializers; say whether it was widened.
    """
    model, widened = load_float32(source)
    LiftConstantsToInitializersPass(lift_all_constants=False)(model)
    name_nodes(model)
    return model, widened


def save_prepared(model: ir.Model, folder: Path) -> PreparedGraph:
    """Write a prepared model to a folder, with its weights next to it."""
    path = folder / PREPARED_FILE
    save_model(model, path)
    return PreparedGraph(path, {})


def save_without_weights(model: ir.Model, folder: Path) -> PreparedGraph:
    """Write a prepared model to a folder without its weights, which can be many times larger than
    what is made of them: the file refers to data that does not exist.
    """
    path = folder / PREPARED_FILE
    weights: dict[ir.Value, ir.TensorProtocol] = {
        value: value.const_value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > _INLINE
    }
    for value, tensor in weights.items():
        value.const_value = ir.ExternalTensor(
            f"{PREPARED_FILE}.absent",
            0,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(list(tensor.shape)),
            name=value.name or "",
            base_dir=folder,
        )
    try:
        ir.save(model, path)
    finally:
        for value, tensor in weights.items():
            value.const_value = tensor
    return PreparedGraph(path, {value.name or "": tensor for value, tensor in weights.items()})


def return_weights(quantized: ir.Model, prepared: PreparedGraph) -> None:
    """Give a quantized model, in place, the weights that `save_without_weights` left out and the
    quantizer kept.
    """
    for graph in quantized.graphs():
        for name, value in graph.initializers.items():
            if name in prepared.weights:
                value.const_value = prepared.weights[name]


def name_nodes(model: ir.Model) -> None:
    """Give every node a unique name: nodes are excluded by name."""
    taken: set[str | None] = set()
    names = all_names(model)
    for node in model.graph.all_nodes():
        if not node.name or node.name in taken:
            node.name = free_name(
                f"{node.op_type}.{node.outputs[0].name if node.outputs else ''}", names
            )
        taken.add(node.name)


def weight(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return a float32 constant of the main graph, which quantizers take for a weight; otherwise
    None.
    """
    if value is None or value.dtype != ir.DataType.FLOAT:
        return None
    return constant_tensor(value) if value.producer() is None else None


def transposed_weight(value: ir.Value | None) -> ir.TensorProtocol | None:
    """Return the constant matrix whose transpose a value is (a tied output layer); otherwise
    None.
    """
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "Transpose" or node.domain != "":
        return None
    tensor = weight(node.inputs[0])
    return tensor if tensor is not None and len(tensor.shape) == 2 else None


def unfold_weight(node: ir.Node, names: set[str | None]) -> None:
    """Give a MatMul whose weight is the Transpose of a constant its own transposed copy."""
    value = node.inputs[1]
    tensor = transposed_weight(value)
    if value is None or tensor is None:
        return
    node.replace_input_with(1, _store_transposed(node, value.name or "", tensor, names))
    producer = value.producer()
    if producer is not None and not value.uses() and not value.is_graph_output():
        assert producer.graph is not None
        producer.graph.remove(producer, safe=True)


def is_plain_gemm(node: ir.Node) -> bool:
    """Return True if a Gemm is just a matrix product and a sum."""

    def number(name: str, default: float) -> float:
        attribute = node.attributes.get(name)
        return default if attribute is None else float(attribute.value)

    plain = number("alpha", 1.0) == 1.0 and number("transA", 0) == 0
    return plain and (number("beta", 1.0) == 1.0 or len(node.inputs) < 3 or node.inputs[2] is None)


def gemm_to_matmul(node: ir.Node, names: set[str | None]) -> ir.Node:
    """Replace a plain Gemm with MatMul and Add, which weight quantizers support; return the
    MatMul.
    """
    first, second = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    output, graph = node.outputs[0], node.graph
    assert graph is not None
    transposed = node.attributes.get("transB")
    if second is not None and transposed is not None and transposed.as_int():
        tensor = weight(second)
        assert tensor is not None
        second = _store_transposed(node, second.name or "", tensor, names)
    product = ir.Value(
        name=free_name(f"{output.name}.product", names), type=output.type, shape=output.shape
    )
    matmul = ir.Node(
        "",
        "MatMul",
        [first, second],
        outputs=[product],
        name=free_name(f"{node.name}.MatMul", names),
    )
    matmul.metadata_props.update(node.metadata_props)
    name, kind, shape = output.name, output.type, output.shape
    graph.insert_before(node, matmul)
    if bias is None:
        _take_place(node, product, name)
        return matmul
    total = ir.Value(name=free_name(f"{name}.sum", names), type=kind, shape=shape)
    add = ir.Node(
        "", "Add", [product, bias], outputs=[total], name=free_name(f"{node.name}.Add", names)
    )
    add.metadata_props.update(node.metadata_props)
    graph.insert_before(node, add)
    _take_place(node, total, name)
    return matmul


def _take_place(node: ir.Node, value: ir.Value, name: str | None) -> None:
    """Replace a node's output with a value, which gets its name, and remove the node."""
    old, graph = node.outputs[0], node.graph
    assert graph is not None
    ir.convenience.replace_all_uses_with(old, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    old.name = f"{name}.replaced"
    value.name = name


def _store_transposed(
    node: ir.Node, name: str, tensor: ir.TensorProtocol, names: set[str | None]
) -> ir.Value:
    rows, columns = tensor.shape
    graph = node.graph
    assert graph is not None
    unique = free_name(
        f"{name}.transposed" if not name.endswith(".T") else name.removesuffix(".T"), names
    )

    def turned() -> ir.Tensor:
        return ir.Tensor(tensor.numpy().T.copy(), dtype=tensor.dtype, name=unique)

    shape = ir.Shape([columns, rows])
    stored = ir.LazyTensor(turned, dtype=tensor.dtype, shape=shape, name=unique)
    return add_constant(graph, unique, stored)

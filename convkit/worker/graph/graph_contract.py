"""The contract declared by a graph's inputs and outputs, and the one stored in its metadata."""

import json
from collections.abc import Sequence
from pathlib import Path

import onnx
import onnx_ir

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.worker.graph.class_labels import maps_as_tables
from convkit.worker.graph.graph_loading import sparse_as_dense
from convkit.worker.graph.lint.onnx_checker import name_graphs
from convkit.worker.graph.lint.opsets import import_assumed
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION, UNKNOWN_RANK


def load_graph(path: Path) -> onnx_ir.Model:
    """Load a model without its external weights, which are mapped on demand. Sequences of maps
    that it returns become tables (`class_maps`), sparse weights become dense, and domains and names
    that onnxruntime does not insist on are added. Raises StageFailedError.
    """
    try:
        proto = onnx.load(path, load_external_data=False)
        import_assumed(proto)
        name_graphs(proto)
        maps_as_tables(proto)
        sparse_as_dense(proto, path.parent)
        model = onnx_ir.from_proto(proto)
    except FileNotFoundError as error:
        raise StageFailedError(f"there is no file {path}") from error
    except Exception as error:  # protobuf's and onnx-ir's errors have no base of their own
        raise StageFailedError(
            f"{path.name} is not a readable ONNX file: {type(error).__name__}: {error}"
        ) from error
    onnx_ir.external_data.set_base_dir(model.graph, path.parent)
    return model


def read_contract(path: Path) -> Contract:
    """Return the graph's declared contract: names, order, element types, sizes or symbolic names;
    weights are not read.

    `axes` is empty, since graphs do not declare ranges. A dimension without size or name is
    `UNKNOWN_DIMENSION`, a tensor without a shape has `UNKNOWN_RANK`.
    """
    return graph_contract(load_graph(Path(path)))


def graph_contract(model: onnx_ir.Model) -> Contract:
    """Return a loaded graph's declared contract; see `read_contract`. Initializers listed as inputs
    do not count.
    """
    graph = model.graph
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    return Contract(
        tuple(map(_specification, inputs)), tuple(map(_specification, graph.outputs)), ()
    )


def carried_contract(path: Path) -> Contract | None:
    """Return the contract in the file's metadata, or None; raises StageFailedError for a damaged
    one.
    """
    text = load_graph(Path(path)).metadata_props.get(CONTRACT_KEY)
    if text is None:
        return None
    try:
        return decode(Contract, json.loads(text))
    except (ValueError, CodecError) as error:
        raise StageFailedError(f"{Path(path).name} carries a damaged contract: {error}") from error


def carry_contract(model: onnx_ir.Model, contract: Contract) -> None:
    """Write the contract to the model's metadata; the same contract produces the same bytes."""
    model.metadata_props[CONTRACT_KEY] = json.dumps(
        encode(contract.carried()), sort_keys=True, separators=(",", ":")
    )


def _specification(value: onnx_ir.Value) -> TensorSpec:
    name = value.name or ""
    if not isinstance(value.type, onnx_ir.TensorType):
        raise StageFailedError(f"{name!r} of the graph {_no_tensor(value.type)}")
    dtype = contract_dtype(value.type.dtype)
    if dtype is None:
        raise StageFailedError(
            f"{name!r} of the graph has elements of type {value.type.dtype.name.lower()}"
        )
    shape = (
        UNKNOWN_RANK
        if value.shape is None
        else tuple(dimension_of(dimension) for dimension in value.shape)
    )
    return TensorSpec(name, dtype, shape)


def _no_tensor(kind: onnx_ir.TypeProtocol | None) -> str:
    """Return what a value is that is not a tensor, and how to make one of it."""
    match kind:
        case onnx_ir.SequenceType():
            return (
                "is a sequence of tensors, and a contract holds tensors only; join its elements in"
                " the graph (ConcatFromSequence), or make each an input or output of its own"
                " (SequenceAt, SequenceConstruct)"
            )
        case onnx_ir.OptionalType():
            return (
                "is optional, and a contract holds tensors only; make it a tensor in the graph"
                " (OptionalGetElement), or remove it"
            )
        case _:
            return "has no type; declare one in the file (onnx.shape_inference can)"


def dimension_of(dimension: int | onnx_ir.SymbolicDim) -> Dimension:
    """Return a size, a symbolic name, or `UNKNOWN_DIMENSION`.

    Paddle writes -1 for a size that it does not know.
    """
    if isinstance(dimension, int):
        return dimension if dimension >= 0 else UNKNOWN_DIMENSION
    return UNKNOWN_DIMENSION if dimension.value is None else str(dimension.value)


def rename_to_contract(model: onnx_ir.Model, contract: Contract) -> None:
    """Rename inputs and outputs to the contract's names if the recipe specifies their original
    names as `from`.
    """
    _rename(model.graph.inputs, contract.inputs)
    _copy_returned_inputs(model.graph, contract.outputs)
    _rename(model.graph.outputs, contract.outputs)


def _copy_returned_inputs(graph: onnx_ir.Graph, specs: Sequence[TensorSpec]) -> None:
    """Copy each input that is returned unchanged under a new name: the input keeps its own."""
    names = [value.name for value in graph.outputs]
    for spec in specs:
        if spec.origin not in names or spec.name in names:
            continue
        index = names.index(spec.origin)
        value = graph.outputs[index]
        if value.is_graph_input():
            copy = onnx_ir.Value(name=spec.name, type=value.type, shape=value.shape)
            graph.append(onnx_ir.Node("", "Identity", [value], outputs=[copy]))
            graph.outputs[index] = copy


def _rename(values: Sequence[onnx_ir.Value], specs: Sequence[TensorSpec]) -> None:
    present = {value.name: value for value in values}
    for spec in specs:
        if spec.origin in present and spec.name not in present:
            present[spec.origin].name = spec.name


def name_in_order(graph: onnx_ir.Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give a graph's inputs and outputs these names, in order; other values that have one of them
    get another. Raises ValueError if the numbers differ.
    """
    wanted = [*zip(graph.inputs, inputs, strict=True), *zip(graph.outputs, outputs, strict=True)]
    ends, names = {id(value) for value, _ in wanted}, {name for _, name in wanted}
    made = [value for node in graph.all_nodes() for value in node.outputs]
    for value in (*made, *graph.initializers.values()):
        if value.name in names and id(value) not in ends:
            value.name = f"{value.name}_inside"
    for value, name in wanted:
        value.name = name


def order_inputs(model: onnx_ir.Model, contract: Contract) -> None:
    """Put the inputs in the contract's order if they are the contract's inputs; otherwise leave
    them for the check to report.
    """
    present = {value.name: value for value in model.graph.inputs}
    names = [spec.name for spec in contract.inputs]
    if sorted(present) != sorted(names):
        return
    model.graph.inputs.clear()
    model.graph.inputs.extend(present[name] for name in names)

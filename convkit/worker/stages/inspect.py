"""Inspects an ONNX file without weights: contract, opset, types, operators, metadata."""

from collections import Counter
from pathlib import Path

import onnx
import onnx_ir

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import InspectRequest, InspectResult, ModuleTypes
from convkit.worker.graph.graph_contract import carried_contract, load_graph, read_contract
from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.graph_weights import constants
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.graph.typed_graph import UntypedValueError, prepare
from convkit.worker.job_context import Context, StageFailedError


def run(request: InspectRequest, _context: Context) -> tuple[InspectResult, list[Finding]]:
    """Return a summary of the file; raises StageFailedError if it is not an ONNX file."""
    path = Path(request.model)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise StageFailedError(f"not a readable ONNX file: {error}") from error
    if not model.HasField("graph") or not model.opset_import:
        raise StageFailedError("not an ONNX file: it has no graph")
    elements: Counter[str] = Counter()
    graph = load_graph(path)
    for tensor in constants(graph):
        elements[_dtype(int(tensor.dtype))] += int(tensor.size)
    external = {
        entry.value
        for tensor in model.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    operators = Counter(_operator(node) for node in graph.graph.all_nodes())
    folder = path.parent.resolve()
    named = [(folder / name).resolve() for name in sorted(external)]
    files = [path, *(file for file in named if file.is_relative_to(folder))]
    result = InspectResult(
        graph=read_contract(path),
        carried=carried_contract(path),
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        size_bytes=sum(file.stat().st_size for file in files if file.is_file()),
        elements=dict(elements.most_common()),
        operators=dict(operators.most_common()),
        metadata={
            entry.key: entry.value
            for entry in model.metadata_props
            if entry.key != "convkit.contract"
        },
        modules=_modules(path) if request.modules else (),
    )
    return result, []


def _modules(path: Path) -> tuple[ModuleTypes, ...]:
    try:
        return module_types(prepare(onnx_ir.load(path)))
    except UntypedValueError as error:
        raise StageFailedError(f"{path.name}: {error}") from error


def module_types(model: onnx_ir.Model) -> tuple[ModuleTypes, ...]:
    """Return the element types of a prepared model by module, in graph order.

    A node counts by its first result; a weight used by several modules counts for the first.
    """
    nodes: dict[str, Counter[str]] = {}
    weights: dict[str, Counter[str]] = {}
    counted: set[onnx_ir.Value] = set()
    for node, module in nodes_with_modules(model):
        own = nodes.setdefault(module, Counter())
        result = next((value for value in node.outputs if value.dtype is not None), None)
        if node.op_type != "Constant" and result is not None and result.dtype is not None:
            own[_dtype(int(result.dtype))] += 1
        for value in node.inputs:
            if value is None or value in counted or (tensor := _weight(value)) is None:
                continue
            counted.add(value)
            weights.setdefault(module, Counter())[_dtype(int(tensor.dtype))] += tensor.size
    return tuple(
        ModuleTypes(
            module, dict(own.most_common()), dict(weights.get(module, Counter()).most_common())
        )
        for module, own in nodes.items()
    )


def _weight(value: onnx_ir.Value) -> onnx_ir.TensorProtocol | None:
    """Return the constant that a value is, whether or not callers can replace it."""
    return constant_tensor(value) or (value.const_value if value.is_initializer() else None)


def _dtype(code: int) -> str:
    return (
        contract_dtype(onnx_ir.DataType(code)) or str(onnx.TensorProto.DataType.Name(code)).lower()
    )


def _operator(node: onnx_ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)

"""Looks into an ONNX file: contract, opset, element types, operators, metadata. Weights are not read."""

import math
from collections import Counter
from pathlib import Path

import onnx
import onnx_ir

from convkit.findings.model import Finding
from convkit.worker.context import Context, StageFailedError
from convkit.worker.graph import carried_contract, read_contract
from convkit.worker.graph.dtypes import contract_dtype
from convkit.worker.protocol import InspectRequest, InspectResult


def run(request: InspectRequest, _context: Context) -> tuple[InspectResult, list[Finding]]:
    """Return what the file says of itself; raises StageFailedError where it is no ONNX file."""
    path = Path(request.model)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise StageFailedError(f"{path.name} is not a readable ONNX file: {error}") from error
    if not model.HasField("graph") or not model.opset_import:
        raise StageFailedError(f"{path.name} is not an ONNX file: it has no graph")
    elements: Counter[str] = Counter()
    external: set[str] = set()
    for tensor in model.graph.initializer:
        elements[_dtype(tensor.data_type)] += math.prod(tensor.dims)
        external |= {entry.value for entry in tensor.external_data if entry.key == "location"}
    operators = Counter(_operator(node) for node in model.graph.node)
    files = [path, *(path.parent / name for name in sorted(external))]
    result = InspectResult(
        graph=read_contract(path),
        carried=carried_contract(path),
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        size_bytes=sum(file.stat().st_size for file in files if file.is_file()),
        elements=dict(elements.most_common()),
        operators=dict(operators.most_common()),
        metadata={entry.key: entry.value for entry in model.metadata_props if entry.key != "convkit.contract"},
    )
    return result, []


def _dtype(code: int) -> str:
    return contract_dtype(onnx_ir.DataType(code)) or str(onnx.TensorProto.DataType.Name(code)).lower()


def _operator(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)

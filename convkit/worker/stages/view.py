"""What each node of a target's graph computes in one case, beside what it should: the job behind
`convkit view`.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import onnx
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.findings.finding import Finding
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.messages import ViewedNode, ViewRequest, ViewResult
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    label,
    make_graph,
    module_of,
    read_graph,
    reads,
    source_of,
)
from convkit.worker.cause.place.expected_values import Expected, expected_values
from convkit.worker.cause.place.node_errors import as_quantized, node_error
from convkit.worker.exporters.export_job import WRAPPER
from convkit.worker.graph.graph_loading import load_model as load_graph
from convkit.worker.graph.typed_graph import UntypedValueError, prepare, with_types
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.precision.simulation.simulated_graph import low_nodes, simulate
from convkit.worker.reference.recorded_original import TorchCase

# The types of quantized tensors, and the operators whose results stay quantized.
_WHOLE = ("int8", "uint8", "int4", "uint4")
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear")


def run(request: ViewRequest, context: Context) -> tuple[ViewResult, list[Finding]]:
    """Return the graph's nodes with their errors; raises StageFailedError if it cannot be run."""
    feeds = read_tensors(Path(request.reference), request.case, "inputs", request.contract.inputs)
    exported = read_graph(find_model(Path(request.exported), EXPORTED_FILE))
    expected = _expected(request, exported, dict(feeds), context)
    if request.built is None:
        nodes = _nodes(exported, expected.found, expected, {}, {})
        return _result(exported, nodes, expected, "exported"), []
    context.progress("running the built model, node by node", done=0.7)
    model = load_graph(find_model(Path(request.built), EXPORTED_FILE))
    typed, low = _typed(model)
    shown = make_graph(typed)
    found = as_quantized(shown, _run(make_graph(simulate(typed)) if low else shown, feeds))
    types = _types(typed)
    nodes = _nodes(shown, found, expected, types, _origins(exported))
    result = _result(shown, nodes, expected, "built")
    return dataclasses.replace(result, simulated=bool(low), range_of=_range_of(types)), []


def _expected(request: ViewRequest, exported: Graph, feeds: Values, context: Context) -> Expected:
    if request.source.kind == "onnx":
        found = _run(exported, feeds)
        return Expected(found, found, 0.0, "original")
    context.progress("loading the original model", done=0.1)
    case = TorchCase.load(request, feeds)
    context.progress(f"recording the original: {request.case}", done=0.2)
    original = case.recorded()
    context.progress("comparing the exported graph with the original", done=0.4)
    return expected_values(original.recording, exported, original.feeds)


def _typed(model: ir.Model) -> tuple[ir.Model, set[str]]:
    """Return a model with its values' types, and the results that it computes in a low type."""
    try:
        typed = prepare(model)
    except UntypedValueError:  # operators of a runtime's own: nothing there is simulated
        return with_types(model), set()
    return typed, low_nodes(typed)


def _types(model: ir.Model) -> dict[str, str]:
    """Return the element types of a graph's values, by name."""
    return {
        value.name: value.dtype.numpy().name
        for node in model.graph
        for value in node.outputs
        if value.name and value.dtype is not None
    }


def _run(graph: Graph, feeds: Values) -> Values:
    names = [name for node in graph.nodes for name in node.output if name]
    try:
        return graph.run(names, feeds)
    except PieceFailedError as error:
        raise StageFailedError(f"the graph cannot be run node by node: {error}") from error


def _origins(exported: Graph) -> dict[str, tuple[str, str | None]]:
    """Return the module and the source line behind each value: runtimes that optimize a graph keep
    the names of values, but not of modules.
    """
    return {
        name: (_module(node), source_of(node)) for node in exported.nodes for name in node.output
    }


def _module(node: onnx.NodeProto) -> str:
    """Return the path of a node's module, without the wrapper that TorchScript's names contain."""
    path = module_of(node)
    return "" if path == WRAPPER else path.removeprefix(f"{WRAPPER}.")


def _range_of(types: Mapping[str, str]) -> DType:
    return "bfloat16" if "bfloat16" in types.values() else "float16"


def _nodes(
    graph: Graph,
    found: Values,
    expected: Expected,
    types: Mapping[str, str],
    origins: Mapping[str, tuple[str, str | None]],
) -> tuple[ViewedNode, ...]:
    arithmetic = _Arithmetic(graph, types, found)
    limit = LIMITS[_range_of(types)].largest
    nodes = []
    for node in graph.nodes:
        inputs, writes = tuple(reads(node)), tuple(name for name in node.output if name)
        compared = node_error(writes, found, expected.values)
        module, source = next((origins[name] for name in writes if name in origins), ("", None))
        first = found.get(writes[0]) if writes else None
        nodes.append(
            ViewedNode(
                name=label(node),
                op=node.op_type if not node.domain else f"{node.domain}.{node.op_type}",
                reads=inputs,
                writes=writes,
                module=_module(node) or module,
                source=source_of(node) or source,
                dtype=arithmetic.of(node.op_type, inputs, writes),
                shape=first.shape if first is not None else None,
                error=compared.error,
                lost=compared.lost,
                largest=compared.largest,
                headroom=limit / compared.largest if compared.largest else None,
            )
        )
    return tuple(nodes)


class _Arithmetic:
    """The type that each node computes in; nodes are asked about in execution order.

    A node between quantized tensors computes in whole numbers, although what a DequantizeLinear
    hands it is called float32.
    """

    def __init__(self, graph: Graph, types: Mapping[str, str], found: Values) -> None:
        self._graph = graph
        self._types = types
        self._found = found
        self._quantized: dict[str, str] = {}

    def of(self, op: str, inputs: tuple[str, ...], writes: tuple[str, ...]) -> str:
        """Return a node's type, such as float16 or int8; empty if it is unknown."""
        whole = [
            dtype
            for name in inputs
            if (dtype := self._quantized.get(name) or self._weight_type(name)) in _WHOLE
        ]
        if whole:
            if op in _QUANTIZING:
                self._quantized.update(dict.fromkeys(writes, whole[0]))
            return whole[0]
        return next((self._result_type(name) for name in writes), "")

    def _weight_type(self, name: str) -> str:
        if name in self._graph.constants:
            return str(self._graph.constants[name].dtype.name)
        if name in self._graph.exotic:
            return str(ir.DataType(self._graph.exotic[name].data_type).numpy().name)
        return ""

    def _result_type(self, name: str) -> str:
        if name in self._types:
            return self._types[name]
        return str(self._found[name].dtype.name) if name in self._found else ""


def _result(
    graph: Graph,
    nodes: tuple[ViewedNode, ...],
    expected: Expected,
    shown: Literal["built", "exported"],
) -> ViewResult:
    return ViewResult(
        nodes=nodes,
        inputs=graph.inputs,
        outputs=graph.outputs,
        shown=shown,
        simulated=False,
        basis=expected.basis,
        deviation=expected.deviation if math.isfinite(expected.deviation) else None,
        corrected_at=expected.corrected_at,
    )

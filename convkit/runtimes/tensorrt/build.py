"""The build stage of TensorRT targets: builds the typed graph for an engine, and the engine.

If the device is absent, only the graph can be built: it is checked against the supported operators
of TensorRT's parser, and verified instead of the engine. The artifact always contains the graph, so
that an engine can be built from it elsewhere, and a simulation can run alongside the engine.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import BuildRequest, BuildResult, OptionsT
from convkit.runtimes.tensorrt.library import rtx_library
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.runtimes.tensorrt.parser_support import check_parser_support
from convkit.runtimes.tensorrt.predicted_support import predicted_by
from convkit.worker.building.built_files import check_carried, finish_build, refused
from convkit.worker.graph.file_links import link_model
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.original.contract_check import check_contract
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.distinct_operators import (
    Operators,
    read_operators,
    write_operators,
)
from convkit.worker.runtime_interface.sessions import ModelRefusedError
from convkit.worker.stages.graph_build import rewritten_graph, stated_by_graph

GRAPH_FILE = "model.onnx"
ENGINE_FILE = "model.engine"
LAYERS_FILE = "layers.json"


_QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear"})


def run(
    request: BuildRequest[EngineOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Write the graph in the target's precision, check it, and build an engine if a device is
    present.

    If TensorRT's parser rejects the graph, returns E213; without TensorRT, its documentation
    decides (T105 to T107, V104). E214 reports an engine that computes in types other than planned.
    Raises StageSkippedError if TensorRT is absent.
    """
    request = with_decision(request)
    findings = write_graph(request, context)
    graph = context.output / GRAPH_FILE
    stated, carried = stated_by_graph(graph)
    findings += check_contract(request.contract, stated, "graph") + check_carried(
        request.contract, carried
    )
    operators = read_operators(context.output)
    if request.stand_in:
        return finish_build(context.output, request.contract, stated), [
            *findings,
            *_predicted(graph, operators),
        ]
    try:
        session, built = _build_engine(graph, request, context)
    except ModelRefusedError as error:
        session, built = Contract((), (), ()), _refused(error, operators)
    return finish_build(context.output, request.contract, session), findings + built


def write_graph(request: BuildRequest[OptionsT], context: Context) -> list[Finding]:
    """Write the graph that an engine is built from, and its operators next to it."""
    findings: list[Finding] = []
    with rewritten_graph(request, findings, context) as rewritten:
        operators = read_operators(rewritten.parent)
        link_model(rewritten, context.output / GRAPH_FILE)
    if operators is None:
        from convkit.worker.graph.graph_loading import load_model
        from convkit.worker.graph.operator_probes import graph_operators

        operators = graph_operators(load_model(context.output / GRAPH_FILE))
    write_operators(operators, context.output)
    return findings


def _predicted(graph: Path, operators: Operators | None) -> list[Finding]:
    """Return what TensorRT's parser would reject: the answer of TensorRT-RTX's, which is built from
    the same sources and needs no GPU; without that library, the documentation's.
    """
    if (library := rtx_library()) is not None:
        return list(predicted_by(library, graph))
    return [
        *(check_parser_support(operators) if operators is not None else []),
        *check_zero_points(graph),
    ]


def _refused(error: ModelRefusedError, operators: Operators | None) -> list[Finding]:
    """Return why there is no engine: the parser's message, or the builder's along with the
    documentation's restrictions.
    """
    from convkit.runtimes.tensorrt.engine import GraphRefusedError

    if isinstance(error, GraphRefusedError):
        return error.findings
    return refused(error, check_parser_support(operators) if operators is not None else [])


def _build_engine(
    graph: Path, request: BuildRequest[EngineOptions], context: Context
) -> tuple[Contract, list[Finding]]:
    from convkit.runtimes.tensorrt.library import check_library

    release = check_library()
    from convkit.runtimes.tensorrt.engine import build_engine
    from convkit.runtimes.tensorrt.engine_contract import arranged, own_order
    from convkit.runtimes.tensorrt.layers import check_layers, planned_types, read_layers
    from convkit.runtimes.tensorrt.session import EngineSession
    from convkit.runtimes.tensorrt.timing import TimingCache

    options = request.options
    timing = TimingCache(Path(request.caches)) if request.caches is not None else None
    context.progress(f"building an engine with TensorRT {release}")
    try:
        built = build_engine(graph, request.contract, options, timing, context)
    except TypeError as error:  # TensorRT's own objects are null if CUDA does not start
        if "nullptr" not in str(error):
            raise
        raise StageSkippedError(f"TensorRT {release} does not start here: {error}") from error
    (context.output / ENGINE_FILE).write_bytes(built.plan)
    (context.output / LAYERS_FILE).write_text(built.layers, encoding="utf-8")
    context.progress("checking the engine's contract and types", done=0.9)
    found = EngineSession(context.output / ENGINE_FILE, options).contract()
    findings = check_contract(request.contract, arranged(request.contract, found), "engine")
    findings += own_order(request.contract, found)
    findings += check_layers(read_layers(built.layers), planned_types(graph))
    return found, findings


def check_zero_points(graph: Path) -> list[Finding]:
    """Return T107 if a quantization has a nonzero zero point or an unsigned type."""
    wrong: list[tuple[ir.Node, str, str]] = []
    for node, module in nodes_with_modules(load_model(graph)):
        if (
            node.op_type not in _QUANTIZING
            or len(node.inputs) < 3
            or (point := node.inputs[2]) is None
        ):
            continue
        tensor = constant_tensor(point)
        if tensor is None:
            wrong.append((node, module, "is computed"))
        elif np.any(tensor.numpy().astype(np.int64) != 0):
            wrong.append(
                (node, module, f"is up to {int(np.abs(tensor.numpy().astype(np.int64)).max())}")
            )
        elif tensor.dtype == ir.DataType.UINT8:
            wrong.append((node, module, "has the unsigned type uint8"))
    if not wrong:
        return []
    node, module, why = wrong[0]
    return [
        Finding(
            "T107",
            f"{len(wrong)} quantization nodes have zero points that TensorRT does not support:"
            f" that of {node.name} {why}",
            Place(node=node.name, module=module or None),
            {"nodes": [node.name for node, _, _ in wrong[:100]]},
            Remedy(
                "Quantize symmetrically with a signed type (precision.symmetric: true in a recipe)."
            ),
        )
    ]

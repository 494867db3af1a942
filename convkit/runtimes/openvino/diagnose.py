"""The diagnose job of OpenVINO targets: the IR beside the exported graph, tensor by tensor."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.cases.files import read_tensors
from convkit.codec import Json, decode
from convkit.findings.model import Finding, Place, Remedy
from convkit.localize.built import BuiltDifference, compare_built
from convkit.localize.graph import label, module_of, read_graph, source_of
from convkit.runtimes.openvino.exposed import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.session import MODEL_FILE
from convkit.stages.built_files import EXPORTED_FILE, find_model
from convkit.worker.context import Context
from convkit.worker.protocol import DiagnoseRequest, DiagnoseResult

if TYPE_CHECKING:
    import onnx

_OTHER_RELEASE = "Use a different release of OpenVINO (tools.openvino)"


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Say what OpenVINO makes of a graph that agrees with the original: N401 or N408; nothing where
    the IR agrees with the graph.
    """
    assert request.exported is not None
    assert request.built is not None
    context.progress("comparing the IR with the exported graph", done=0.1)
    graph = read_graph(find_model(Path(request.exported), EXPORTED_FILE))
    options = decode(OpenVINOOptions, request.options)
    model = ExposedIR(find_model(Path(request.built), MODEL_FILE), options)
    inputs = request.contract.inputs
    feeds = read_tensors(Path(request.reference), request.case, "inputs", inputs)
    found = compare_built(graph, model, dict(feeds))
    if found is None:
        return DiagnoseResult(None, None, 0), []
    nodes = {name: node for node in graph.nodes for name in node.output}
    finding = _finding(found, nodes, request.case)
    placed = found.kind != "unplaced"
    return DiagnoseResult(_finite(found.before), _finite(found.after), int(placed)), [finding]


def _finding(found: BuiltDifference, nodes: "Mapping[str, onnx.NodeProto]", case: str) -> Finding:
    import openvino

    release = f"OpenVINO {str(openvino.__version__).partition('-')[0]}"
    evidence: dict[str, Json] = {
        "kind": found.kind,
        "tensors": list(found.names),
        "before": _figure(found.before),
        "after": _figure(found.after),
        "proven": found.kind != "unplaced",
    }
    if found.kind == "unplaced":
        return Finding(
            "N402",
            f"{release} differs from the exported graph in case {case!r} by {found.before:.2g} of"
            " the outputs' rms, in more places than one",
            Place(case=case),
            evidence,
            Remedy(f"{_OTHER_RELEASE}, or report it with the exported graph."),
        )
    node = nodes[found.names[0]]
    module, source = module_of(node), source_of(node)
    name = label(node)
    where = f"{node.op_type} {name}"
    where += f" (module {module}{f', at {source}' if source else ''})" if module else ""
    place = Place(tensor=found.names[0], node=name, module=module or None, source=source, case=case)
    if found.kind == "fused":
        message = (
            f"{release} changes the results when it merges {where} with what follows: the outputs"
            f" are off by {found.before:.2g} as compiled, and by {found.after:.2g} with this tensor"
            " kept"
        )
        return Finding("N401", message, place, evidence, Remedy(f"{_OTHER_RELEASE}."))
    message = (
        f"{release} does not compute what the exported graph says at {where}: the outputs are off"
        f" by {found.before:.2g} as it is, and by {found.after:.2g} with the graph's value here"
    )
    remedy = Remedy(f"{_OTHER_RELEASE}, or write this part of the model with other operations.")
    return Finding("N408", message, place, evidence, remedy)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figure(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)

"""The diagnose job of OpenVINO targets: compares the IR with the exported graph, tensor by tensor.
An IR that was built from the torch module is searched as a graph of its own.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.runtimes.openvino.as_graph.translation import as_graph
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.session import MODEL_FILE
from convkit.worker.building.built_files import find_model
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import PieceFailedError
from convkit.worker.cause.other_formats.format_wording import in_own_words
from convkit.worker.cause.wording.cause_findings import findings_of
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.reference.recorded_original import record_original
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError
from convkit.worker.stages.diagnose_built import Release, diagnose_built

if TYPE_CHECKING:
    import onnx


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Explain how OpenVINO changes a graph that agrees with the original (see `diagnose_built`)."""
    import openvino

    assert request.built is not None
    options = decode(OpenVINOOptions, request.options)
    file = find_model(Path(request.built), MODEL_FILE)
    model = ExposedIR(file, options)
    if model.opened().from_module:
        return _diagnose_module(request, file, context)
    version = str(openvino.__version__).partition("-")[0]
    release = Release(f"OpenVINO {version}", "tools.openvino")
    return diagnose_built(request, model, model.opened, release, context, computed)


def computed(model: "onnx.ModelProto", feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a graph's outputs as OpenVINO computes them in float32; raises its RuntimeError."""
    import openvino

    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", exact)
    # numpy has two types of whole numbers of 64 bits, of which OpenVINO knows the named one.
    found = compiled({name: each.astype(each.dtype.name) for name, each in feeds.items()})
    return {output.any_name: found[output] for output in compiled.outputs}


def _diagnose_module(
    request: DiagnoseRequest, file: Path, context: Context
) -> tuple[DiagnoseResult, list[Finding]]:
    """Search an IR for what differs from the original in one reference case.

    Raises StageSkippedError if the original cannot be recorded, or the IR is no graph to convkit.
    """
    context.progress(f"recording the original: {request.case}", done=0.1)
    try:
        original = record_original(request)
        translated = as_graph(file, original.feeds, original.recording.outputs)
    except (PieceFailedError, ModelRefusedError, RunFailedError) as error:
        raise StageSkippedError(str(error)) from error
    if translated is None:
        raise StageSkippedError("the IR has operators that the search does not know")
    context.progress("searching the IR", done=0.3)
    feeds = original.feeds
    diagnosis = localize(
        original.recording, translated.graph, feeds, original.state, seconds=request.seconds
    )
    remedy = Remedy("Build from the exported graph: write source: onnx.", {"target.source": "onnx"})
    findings = [
        in_own_words(each, translated, remedy) for each in findings_of(diagnosis, request.case)
    ]
    errors = [
        each if math.isfinite(each) else None for each in (diagnosis.error, diagnosis.remaining)
    ]
    return DiagnoseResult(errors[0], errors[1], len(diagnosis.causes)), findings

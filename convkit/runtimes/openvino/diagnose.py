"""The diagnose job of OpenVINO targets: compares the IR with the exported graph, tensor by
tensor.
"""

from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.session import MODEL_FILE
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.stages.diagnose_built import Release, diagnose_built


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Explain how OpenVINO changes a graph that agrees with the original (see `diagnose_built`)."""
    import openvino

    assert request.built is not None
    options = decode(OpenVINOOptions, request.options)
    model = ExposedIR(find_model(Path(request.built), MODEL_FILE), options)
    version = str(openvino.__version__).partition("-")[0]
    release = Release(f"OpenVINO {version}", "tools.openvino")
    return diagnose_built(request, model, model.opened, release, context)

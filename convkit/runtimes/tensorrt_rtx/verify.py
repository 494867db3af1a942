"""The verify stage of TensorRT-RTX targets: the engine on the GPU, or without one the graph that it
was built from, simulated.

Under another release than the one that built the engine, the engine is built again first: a release
loads its own engines only.
"""

import contextlib
import tempfile
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import VerifyRequest, VerifyResult
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.tensorrt.build import ENGINE_FILE, GRAPH_FILE
from convkit.runtimes.tensorrt.library import ELSEWHERE
from convkit.runtimes.tensorrt.verify import BuiltEngine, of_graph
from convkit.runtimes.tensorrt_rtx.build import recorded_release
from convkit.runtimes.tensorrt_rtx.engine import build_engine
from convkit.runtimes.tensorrt_rtx.library import check_library, unsupported_gpu
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.runtimes.tensorrt_rtx.session import RtxSession
from convkit.worker.building.built_files import find_model, refused
from convkit.worker.job_context import Context
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RuntimeSession
from convkit.worker.stages.graph_verify import graph_subject, verify_graph
from convkit.worker.verification.model_verification import Subject, verify


def run(request: VerifyRequest[RtxOptions], context: Context) -> tuple[VerifyResult, list[Finding]]:
    """Verify an engine on the GPU; without one, or on one that the release does not support, verify
    its graph by simulation.

    Raises StageSkippedError if TensorRT-RTX is absent.
    """
    with tempfile.TemporaryDirectory(prefix="engine-", dir=context.output.parent) as folder:
        engine, findings = _engine(request, Path(folder), context)
        missing = _missing_device(request)
        no_engine = any(finding.is_error for finding in findings)
        if request.stand_in or missing is not None or no_engine:
            result, found = verify_graph(of_graph(request), onnxruntime, context)
            return result, [*findings, *([missing] if missing is not None else []), *found]
        decided = with_decision(request)
        subject = BuiltEngine(decided, of_graph(decided), lambda _: RtxSession(engine))
        result, found = verify(decided, subject, context)
        return result, [*findings, *found]


def subject(request: VerifyRequest[RtxOptions], held: contextlib.ExitStack) -> Subject:
    """Return the engine, or its graph if there is no device, as a part of a joined run."""
    del held
    if request.stand_in or _missing_device(request) is not None:
        return graph_subject(of_graph(request), onnxruntime)
    request = with_decision(request)
    return BuiltEngine(request, of_graph(request), _open_built)


def _open_built(request: VerifyRequest[RtxOptions]) -> RuntimeSession:
    return RtxSession(find_model(Path(request.built), ENGINE_FILE))


def _missing_device(request: VerifyRequest[RtxOptions]) -> Finding | None:
    """Return E101 if there is a driver and no GPU that the release supports and the engine is built
    for; None if there is one, or if the host knows that the device is absent.
    """
    if request.stand_in:
        return None
    why = unsupported_gpu(check_library(), request.options.compute_capabilities)
    if why is None:
        return None
    message = f"the engine was built and not run, its graph was simulated: {why}"
    return Finding("E101", message, Place(), {}, Remedy(ELSEWHERE), severity="note")


def _engine(
    request: VerifyRequest[RtxOptions], folder: Path, context: Context
) -> tuple[Path, list[Finding]]:
    """Return an engine of this environment's release, and what building it found: nothing if it is
    the release that the build stage had.
    """
    built = Path(request.built)
    library = check_library()
    if recorded_release(built) == str(library.__version__):
        return built / ENGINE_FILE, []
    try:
        outcome = build_engine(
            library, built / GRAPH_FILE, request.contract, request.options, context
        )
    except ModelRefusedError as error:
        return folder / ENGINE_FILE, refused(error)
    if outcome.built is None:
        return folder / ENGINE_FILE, outcome.findings
    (folder / ENGINE_FILE).write_bytes(outcome.built.plan)
    made = Finding(
        "E240",
        f"TensorRT-RTX {library.__version__} built an engine of its own from the same graph:"
        f" {len(outcome.built.plan) / 1e6:.1f} MB from {len(outcome.built.layers)} layers in"
        f" {outcome.built.build_seconds:.1f} s",
        evidence={
            "release": str(library.__version__),
            "bytes": len(outcome.built.plan),
            "sha256": outcome.built.digest,
            "layers": len(outcome.built.layers),
            "build_seconds": round(outcome.built.build_seconds, 3),
        },
    )
    return folder / ENGINE_FILE, [*outcome.findings, made]

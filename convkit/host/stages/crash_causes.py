"""Why a runtime crashed its process: asks the runtime's own search, in another process."""

import threading
from pathlib import Path

from convkit.host.plan.stages import Stage
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WorkerStrategy
from convkit.host.store.store import Store
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    PROTOCOL,
    BuildRequest,
    CrashRequest,
    CustomOps,
    Envelope,
    StageRequest,
    VerifyRequest,
)
from convkit.protocol.runtimes.runtime_registry import runtimes


def crash_envelope(
    stage: Stage, request: StageRequest, output: Path, custom_ops: CustomOps | None = None
) -> Envelope | None:
    """Return the search for what crashed a stage; None if its runtime has none, or nothing is
    known of a graph.
    """
    runtime = runtimes()[stage.runtime] if stage.runtime is not None else None
    if runtime is None or runtime.module_of("crash") is None:
        return None
    if not isinstance(request, BuildRequest | VerifyRequest):
        return None
    built = request.built if isinstance(request, VerifyRequest) else None
    graph = request.exported or built
    if graph is None:
        return None
    wanted = CrashRequest(request.options, request.precision, graph, request.decision)
    return Envelope(
        PROTOCOL,
        "crash",
        str(output),
        encode(wanted),
        runtime=runtime.package,
        custom_ops=custom_ops or CustomOps(),
    )


def cause_of_crash(
    stage: Stage,
    request: StageRequest,
    custom_ops: CustomOps,
    python: Path,
    store: Store,
    workers: WorkerStrategy,
    timeout_seconds: float,
    cancelled: threading.Event,
) -> tuple[Finding, ...]:
    """Return E321 if the crash can be repeated; nothing if the search fails too."""
    with store.staging() as folder:
        output = folder / "output"
        output.mkdir()
        envelope = crash_envelope(stage, request, output, custom_ops)
        if envelope is None:
            return ()
        outcome = run_worker(
            python,
            envelope,
            folder,
            workers=workers,
            timeout_seconds=timeout_seconds,
            on_event=lambda _message, _done: None,
            cancelled=cancelled,
        )
    answer = outcome.answer
    return answer.findings if answer is not None and answer.outcome == "done" else ()

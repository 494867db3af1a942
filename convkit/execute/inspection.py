"""`convkit inspect`: reads a model file, in an environment that has the library for it."""

import threading
from collections.abc import Callable
from pathlib import Path

from convkit.codec import decode, encode
from convkit.errors import ModelFileError
from convkit.execute.worker_process import run_worker
from convkit.execute.workers import WORKERS
from convkit.home import Home
from convkit.runtimes.registry import runtimes
from convkit.runtimes.row import Runtime
from convkit.store.store import Store
from convkit.toolchain.environments import ensure_environment
from convkit.toolchain.requirements import inspection_spec
from convkit.toolchain.resolution import resolve
from convkit.worker.protocol import PROTOCOL, Envelope, InspectRequest, InspectResult

_TIMEOUT_SECONDS = 600.0
_GRAPH = ".onnx"


def _file_and_runtime(path: Path) -> tuple[Path, Runtime | None]:
    """Return the model at a path, or in a folder, and the runtime whose job reads it; None if
    convkit's own job does.
    """
    readers = [row for row in runtimes().values() if row.module_of("inspect") is not None]
    for row in readers:
        found = next(iter(sorted(path.glob(f"*{row.suffix}"))), None) if path.is_dir() else None
        if path.exists() and path.name.endswith(row.suffix):
            return path, row
        if found is not None:
            return found, row
    file = path / f"model{_GRAPH}" if path.is_dir() else path
    if not file.is_file():
        known = ", ".join(f"model{suffix}" for suffix in (_GRAPH, *(row.suffix for row in readers)))
        raise ModelFileError(f"{path}: no such file, nor a folder with one of {known}")
    return file, None


def inspect_model(
    path: Path, home: Home, progress: Callable[[str], None], *, modules: bool = False
) -> InspectResult:
    """Describe an ONNX file, a Core ML package, or a folder with either; raises ModelFileError.

    With `modules`, include element types by module.
    """
    file, runtime = _file_and_runtime(path)
    environment = ensure_environment(
        resolve(inspection_spec(runtime), home.root), home.root, progress=progress
    )
    with Store(home.store).staging() as folder:
        output = folder / "output"
        output.mkdir()
        envelope = Envelope(
            PROTOCOL,
            "inspect",
            str(output),
            encode(InspectRequest(str(file.resolve()), modules)),
            runtime=runtime.package if runtime is not None else None,
        )
        outcome = run_worker(
            environment.python,
            envelope,
            folder,
            workers=WORKERS["isolated"],
            timeout_seconds=_TIMEOUT_SECONDS,
            on_event=lambda message, _done: progress(message),
            cancelled=threading.Event(),
        )
    if outcome.answer is None or outcome.answer.outcome != "done":
        reason = outcome.answer.error if outcome.answer else f"{outcome.ending}\n{outcome.log_tail}"
        raise ModelFileError(f"{path}: {reason}")
    return decode(InspectResult, outcome.answer.result)

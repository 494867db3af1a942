"""`convkit inspect`: a look into a model file, in an environment that can read it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from convkit.codec import decode, encode
from convkit.errors import ModelFileError
from convkit.execute.worker_process import run_worker
from convkit.execute.workers import WORKERS
from convkit.home import Home
from convkit.store.store import Store
from convkit.toolchain.environments import ensure_environment
from convkit.toolchain.requirements import inspection_spec
from convkit.toolchain.resolution import resolve
from convkit.worker.protocol import PROTOCOL, Envelope, InspectRequest, InspectResult

_TIMEOUT_SECONDS = 600.0
_PACKAGES = (".mlpackage", ".mlmodel", ".mlmodelc")


def _file_and_job(path: Path) -> tuple[Path, Literal["inspect", "coreml-inspect"]]:
    if path.suffix in _PACKAGES and path.exists():
        return path, "coreml-inspect"
    if (path / "model.mlpackage").is_dir():
        return path / "model.mlpackage", "coreml-inspect"
    file = path / "model.onnx" if path.is_dir() else path
    if not file.is_file():
        raise ModelFileError(
            f"{path}: no such file, nor a folder with a model.onnx or a model.mlpackage"
        )
    return file, "inspect"


def inspect_model(
    path: Path, home: Home, progress: Callable[[str], None], *, modules: bool = False
) -> InspectResult:
    """Return what an ONNX file or a Core ML package (or a folder that holds one of them) is; raises
    ModelFileError.

    With `modules`, element types are told by module.
    """
    file, job = _file_and_job(path)
    environment = ensure_environment(
        resolve(inspection_spec(job), home.root), home.root, progress=progress
    )
    with Store(home.store).staging() as folder:
        output = folder / "output"
        output.mkdir()
        envelope = Envelope(
            PROTOCOL, job, str(output), encode(InspectRequest(str(file.resolve()), modules))
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

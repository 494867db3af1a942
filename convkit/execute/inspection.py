"""`convkit inspect`: a look into a model file, in an environment that can read it."""

import threading
from collections.abc import Callable
from pathlib import Path

from convkit.codec import decode, encode
from convkit.errors import ModelFileError
from convkit.execute.worker_process import run_worker
from convkit.home import Home
from convkit.store.store import Store
from convkit.toolchain.environments import ensure_environment
from convkit.toolchain.requirements import inspection_spec
from convkit.toolchain.resolution import resolve
from convkit.worker.protocol import PROTOCOL, Envelope, InspectRequest, InspectResult

_TIMEOUT_SECONDS = 600.0


def inspect_model(path: Path, home: Home, progress: Callable[[str], None], *, modules: bool = False) -> InspectResult:
    """Return what an ONNX file (or a folder with one `model.onnx`) is; raises ModelFileError.

    With `modules`, element types are told by module.
    """
    file = path / "model.onnx" if path.is_dir() else path
    if not file.is_file():
        raise ModelFileError(f"{path}: no such file, nor a folder with a model.onnx")
    environment = ensure_environment(resolve(inspection_spec(), home.root), home.root, progress=progress)
    with Store(home.store).staging() as folder:
        output = folder / "output"
        output.mkdir()
        envelope = Envelope(PROTOCOL, "inspect", str(output), encode(InspectRequest(str(file.resolve()), modules)))
        outcome = run_worker(
            environment.python,
            envelope,
            folder,
            timeout_seconds=_TIMEOUT_SECONDS,
            on_event=lambda message, _done: progress(message),
            cancelled=threading.Event(),
        )
    if outcome.answer is None or outcome.answer.outcome != "done":
        reason = outcome.answer.error if outcome.answer else f"{outcome.ending}\n{outcome.log_tail}"
        raise ModelFileError(f"{path}: {reason}")
    return decode(InspectResult, outcome.answer.result)

"""Runs the real worker process, or a small script in its place."""

import json
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convkit.host.processes.worker_process import WorkerOutcome, run_worker
from convkit.host.processes.worker_start import BOOTSTRAP, FreshProcesses
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import PROTOCOL, Answer, Envelope

PYTHON = Path(sys.executable)
Run = Callable[..., WorkerOutcome]


def run(folder: Path, entry: Path | None = None, **options: Any) -> WorkerOutcome:
    (folder / "output").mkdir(exist_ok=True)
    request = options.pop("request", {"model": str(folder / "absent.onnx")})
    arguments: dict[str, Any] = {
        "timeout_seconds": 120.0,
        "on_event": lambda *_: None,
        "cancelled": threading.Event(),
        "workers": FreshProcesses(entry or BOOTSTRAP),
    }
    envelope = options.pop(
        "envelope", Envelope(PROTOCOL, "inspect", str(folder / "output"), request)
    )
    return run_worker(options.pop("python", PYTHON), envelope, folder, **(arguments | options))


def stand_in_worker(folder: Path) -> Run:
    """Return a function that runs a few lines in place of a worker; they find `request`, `result`,
    `answer()` and `event()`.
    """

    def run_script(body: str, **options: Any) -> WorkerOutcome:
        script = folder / "stand_in.py"
        prelude = f"""
            import json, os, signal, subprocess, sys, threading, time
            from pathlib import Path
            request, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
            def answer(text={json.dumps(encode(Answer(PROTOCOL, "done")))!r}):
                part = Path(str(result) + ".part"); part.write_text(text); part.replace(result)
            def event(line): os.write(request["events_fd"], line)
        """
        script.write_text(textwrap.dedent(prelude) + textwrap.dedent(body), encoding="utf-8")
        job = folder / "job"
        job.mkdir(exist_ok=True)
        return run(job, script, **options)

    return run_script


def time_out_after(mark: Path, patch: pytest.MonkeyPatch) -> float:
    """Return a time limit that is over as soon as the worker has written `mark`.

    So however busy the machine is, the worker gets that far, and no test waits for the limit.
    """
    limit = 600.0

    def ahead(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + (limit if mark.exists() else 0.0)

    clocks = types.SimpleNamespace(time=ahead(time.time), monotonic=ahead(time.monotonic))
    patch.setattr("convkit.host.processes.worker_process.time", clocks)
    return limit

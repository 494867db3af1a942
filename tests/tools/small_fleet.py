"""A real cluster on this machine: a scheduler and workers, each a process with its own home."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from other_processes import soon
from watched_workers import running_servers

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    PROTOCOL,
    Answer,
    BuildResult,
    ExportResult,
    LowPrecision,
    PrecisionResult,
    ReferenceResult,
    VerifyResult,
)

# What a stage's process does in place of its work. Its file is another one every time: a second run
# shows.
STUB = """
import json, os, sys, time, uuid
from pathlib import Path

settings = json.loads((Path(__file__).parent / "settings.json").read_text())
envelope = json.loads(Path(sys.argv[1]).read_text())
(Path(__file__).parent / "runs" / f"{uuid.uuid4().hex}").write_text(str(os.getpid()))
if settings["kills_its_worker"]:
    os.kill(os.getppid(), 9)
time.sleep(settings["seconds"])
(Path(envelope["output"]) / "made").write_text(uuid.uuid4().hex)
answer = settings["answers"][envelope["job"]]
Path(sys.argv[2] + ".part").write_text(json.dumps(answer))
os.replace(sys.argv[2] + ".part", sys.argv[2])
"""

# Dask runs a copy of it, twice.
PRELOAD = """
from pathlib import Path
from convkit.host.processes.worker_start import WORKERS, FreshProcesses
WORKERS["host"] = FreshProcesses(Path({stub!r}))
"""


def write_stub(folder: Path, *, seconds: float = 0.1, kills_its_worker: bool = False) -> Path:
    """Write a stub and what makes workers use it; return the preload file for `SmallFleet`."""
    contract = Contract((), (), ())
    results = {
        "export": ExportResult(contract, 17, 8, {}, 0, 0),
        "reference": ReferenceResult((), ()),
        "precision": PrecisionResult(LowPrecision("float16")),
        "build": BuildResult(contract, (), 0),
        "verify": VerifyResult("device", contract, (), (), (), (), ()),
    }
    answers = {
        kind: encode(Answer(PROTOCOL, "done", encode(result))) for kind, result in results.items()
    }
    settings = {"seconds": seconds, "kills_its_worker": kills_its_worker, "answers": answers}
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "stub.py").write_text(STUB)
    (folder / "preload.py").write_text(PRELOAD.format(stub=str(folder / "stub.py")))
    return folder / "preload.py"


def stub_processes(preload: Path) -> list[int]:
    """Return the process ids of all stub stages that were started and have written theirs."""
    written = [path.read_text() for path in (preload.parent / "runs").iterdir()]
    return [int(text) for text in written if text]


class SmallFleet:
    """A scheduler and workers; `env` is added to every process's environment. Ends all of them on
    exit.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        *,
        preload: Path | None = None,
        scheduler_options: Sequence[str] = (),
        **env: str,
    ) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        root = Path(__file__).parents[2]
        self._env = {**os.environ, **env, "PYTHONPATH": str(root)}
        if preload is not None:
            self._env["DASK_DISTRIBUTED__WORKER__PRELOAD"] = str(preload)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "scheduler.json"
        arguments = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            str(file),
            *scheduler_options,
        ]
        try:
            self.scheduler = self._start(
                "scheduler", "-m", "distributed.cli.dask_scheduler", *arguments
            )
            assert soon(lambda: _address(file) is not None, 90), self.log("scheduler")
            self.address: str = _address(file)
            self.workers = [self.add_worker(f"w{number}") for number in range(workers)]
            for number in range(workers):
                name = f"w{number}"
                assert soon(lambda name=name: "Starting established" in self.log(name), 90), (
                    self.log(name)
                )
        except BaseException:
            self.__exit__()
            raise

    def add_worker(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = str(self.folder / f"home-{name}")
        command = [
            "-m",
            "convkit.cli.main",
            "fleet",
            "worker",
            self.address,
            "--home",
            home,
            "--name",
            name,
        ]
        return self._start(name, *command, "--nthreads", "2", *arguments)

    def fork_servers(self) -> set[int]:
        return set().union(*(running_servers(worker.pid) for worker in self.workers))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self.processes):
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(file: Path) -> Any:
    """Return the scheduler's address; None until it has written the whole file."""
    try:
        return json.loads(file.read_text())["address"]
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def stub_targets(count: int) -> Mapping[str, Any]:
    """Return targets of which each has a precision, a build and a verify stage with keys of their
    own.
    """
    return {
        f"t{number}": {
            "runtime": "onnxruntime",
            "precision": {"default": "float16", "keep_float32": [f"module{number}"]},
        }
        for number in range(count)
    }

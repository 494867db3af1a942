"""How worker processes are started: a fresh one each time, or another strategy."""

import dataclasses
import errno
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.protocol.errors import WorkerError, storage_error
from convkit.protocol.installation import PACKAGE
from convkit.protocol.messages import Envelope

BOOTSTRAP = PACKAGE / "worker" / "process" / "bootstrap.py"


@dataclasses.dataclass(frozen=True)
class Launch:
    """A worker to start: its interpreter, files, complete environment, and the descriptor for its
    events.

    `folder` becomes its current folder. `envelope` is the content of its request file. At
    `deadline`, of the monotonic clock, it should have ended.
    """

    python: Path
    envelope: Envelope
    request: Path
    result: Path
    folder: Path
    log: Path
    events: int
    environment: Mapping[str, str]
    deadline: float = math.inf


class WorkerProcess(Protocol):
    """A started worker, which leads its own session; `subprocess.Popen` implements this."""

    @property
    def pid(self) -> int:
        """Its process and process group id."""
        ...

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code; raises subprocess.TimeoutExpired after `timeout` seconds."""
        ...


class WorkerStrategy(Protocol):
    """Starts workers. With any strategy, a worker inherits no state from earlier ones."""

    def start(self, launch: Launch) -> WorkerProcess:
        """Start a worker in its own session; raises WorkerError if none can be started."""
        ...


# As isolated as with -I, which would also ignore PYTHONHASHSEED: no user packages, no current
# folder on the path, and `worker_environment` passes no other PYTHON* variable.
def command(python: Path, entry: Path, *arguments: str) -> list[str]:
    """Return the command line of a worker's interpreter."""
    return [str(python), "-s", "-P", "-X", "faulthandler", str(entry), *arguments]


@dataclasses.dataclass(frozen=True)
class FreshProcesses:
    """Starts a new interpreter for each worker."""

    entry: Path = BOOTSTRAP

    def start(self, launch: Launch) -> "subprocess.Popen[bytes]":
        """Start one."""
        arguments = command(launch.python, self.entry, str(launch.request), str(launch.result))
        try:
            with launch.log.open("wb") as output:
                return subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(launch.environment),
                    pass_fds=(launch.events,),
                    start_new_session=True,
                    cwd=launch.folder,
                )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EROFS):
                raise storage_error(error, launch.folder) from error
            raise WorkerError(
                f"no worker could be started with {arguments[0]}: {error.strerror or error}"
            ) from error


# How the workers of each toolchain are started.
WORKERS: dict[ToolchainKind, WorkerStrategy] = {
    "isolated": FreshProcesses(),
    "host": FreshProcesses(),
}

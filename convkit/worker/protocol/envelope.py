"""How a request reaches a worker and an answer comes back."""

import dataclasses
from typing import Literal

from convkit.codec import Json
from convkit.findings.model import Finding

PROTOCOL = 1

StageKind = Literal["export", "reference", "precision", "build", "verify"]
# What a worker can be asked: a stage, a look into a model file, a comparison of two built
# artifacts, the search for the cause of a difference.
JobKind = Literal[
    "export",
    "reference",
    "precision",
    "build",
    "verify",
    "inspect",
    "compare",
    "diagnose",
    "survey",
]


@dataclasses.dataclass(frozen=True)
class Envelope:
    """What the request file holds. `output` is an empty folder for the stage's files.

    `runtime` is the package of the target's runtime, for the jobs that each runtime does in its own
    way; `runtime_folder` is where to import it from if it is not one of convkit's. The worker ends
    itself when the process `parent_pid` is gone. `expected` are the versions that its environment
    is to have, by normalized package name: importing any other version fails the stage.
    """

    protocol: int
    job: JobKind
    output: str
    request: Json
    runtime: str | None = None
    runtime_folder: str | None = None
    events_fd: int | None = None
    threads: int | None = None
    parent_pid: int | None = None
    expected: dict[str, str] = dataclasses.field(default_factory=dict)


Outcome = Literal["done", "broken", "skipped"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the result file holds.

    done: `result` is there; error findings among `findings` fail the stage's targets. broken: the
    tool failed, `error` and `log` say how. skipped: this machine lacks what the stage needs,
    `error` says what. `opened` are the files, by absolute path, that a stage which loads a model
    read besides its environment (see `convkit.worker.opened_files`).
    """

    protocol: int
    outcome: Outcome
    result: Json = None
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    traceback: str | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    opened: tuple[str, ...] = ()

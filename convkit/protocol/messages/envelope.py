"""How requests reach a worker and answers come back."""

import dataclasses
from typing import Literal

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages.custom_operators import CustomOps

PROTOCOL = 1

StageKind = Literal["export", "reference", "precision", "build", "verify", "join"]
# The jobs a worker can run: the stages, inspecting a model file, comparing two built artifacts,
# searching for the cause of a difference, timing a model in a benchmark session, and computing what
# each node of a graph returns.
JobKind = Literal[
    "export",
    "reference",
    "precision",
    "build",
    "verify",
    "join",
    "inspect",
    "compare",
    "diagnose",
    "rounding",
    "crash",
    "survey",
    "survey-model",
    "bench",
    "bench-original",
    "bench-joined",
    "view",
    "reproduce",
]


@dataclasses.dataclass(frozen=True)
class Envelope:
    """Contents of the request file. `output` is an empty folder for the stage's files.

    `runtime` is the package of the target's runtime, for jobs with a runtime-specific
    implementation; `runtime_folder` is where to import it from if it is not part of convkit. The
    worker exits when the process `parent_pid` is gone. `expected` maps normalized package names to
    the versions its environment must have: importing any other version fails the stage.
    `custom_ops` are registered in every session of onnxruntime that the job opens.
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
    custom_ops: CustomOps = dataclasses.field(default_factory=CustomOps)


Outcome = Literal["done", "broken", "skipped"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Contents of the result file.

    done: `result` is set; error findings in `findings` fail the stage's targets. broken: the tool
    failed, as `error` and `log` explain. skipped: this machine lacks something the stage needs,
    named in `error`. `opened` lists the absolute paths of files outside its environment that a
    model-loading stage read (see `convkit.worker.process.opened_files`), `unread` the fields of its
    request that it did not (see `convkit.protocol.jobs.unread_fields`).
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
    unread: tuple[str, ...] = ()

"""The messages between a run and its fleet's workers: self-contained JSON."""

import dataclasses
from typing import Literal

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.plan.stages import Stage
from convkit.host.record.run_record import StageReport
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.json_codec import Json


@dataclasses.dataclass(frozen=True)
class StageOrder:
    """One stage to run.

    `key`, `ingredients` and `inputs` (artifacts by stage id) are as the run computed them: a worker
    that would compute others refuses. `files` is the artifact with the files that the recipe refers
    to, `place` the recipe's path inside it. `store` is the URL of the shared store, `topic` the
    topic for progress events.
    """

    format: Literal[1]
    stage: Stage
    key: str
    ingredients: dict[str, str]
    inputs: dict[str, str]
    recipe: str
    place: str
    files: str
    toolchain: ToolchainKind
    resolution: Resolution | None
    store: str
    topic: str
    force: bool = False


@dataclasses.dataclass(frozen=True)
class Answered:
    """How a stage ended on a worker. Its artifact is in the shared store.

    `kept`: the shared store also has the record under its key, including the result and log.
    `second` is the artifact that this worker built when another had already been stored under the
    same key. `error`: the stage could not even be started. `interrupted`: the worker was stopped,
    not the run.
    """

    worker: str
    report: StageReport | None = None
    log: str = ""
    result: Json = None
    kept: bool = False
    second: str | None = None
    error: str | None = None
    interrupted: bool = False

"""What a run sends to a worker of its fleet, and what comes back: JSON, whole in itself."""

import dataclasses
from typing import Literal

from convkit.codec import Json
from convkit.execute.facts import ToolchainKind
from convkit.plan.stages import Stage
from convkit.record.model import StageReport
from convkit.toolchain.resolution import Resolution


@dataclasses.dataclass(frozen=True)
class Order:
    """One stage to run.

    `key`, `ingredients` and `inputs` (artifacts by stage id) are what the run makes of it: the
    worker refuses where it would make something else. `files` is the artifact that holds the files
    that the recipe names, `place` where the recipe stands among them. `store` is the URL of the
    shared store, `topic` what progress is told under.
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

    `kept`: the record under its key is there as well, and holds the result and the log. `second` is
    the artifact that this worker made where another one had been first with the same key. `error`:
    it could not even be tried. `interrupted`: the worker was stopped, not the run.
    """

    worker: str
    report: StageReport | None = None
    log: str = ""
    result: Json = None
    kept: bool = False
    second: str | None = None
    error: str | None = None
    interrupted: bool = False

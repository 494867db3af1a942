"""A script that shows a located fault without convkit, as an upstream tracker accepts it."""

import dataclasses
from typing import Literal

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Place
from convkit.protocol.messages.model_request import Source

# graph: a piece of the exported graph, which the runtime computes wrong · refused: a piece that the
# runtime does not load · module: a few operations of torch, which the exporter converts wrong ·
# conversion: the user's own module, which does not export or convert.
ReproducerKind = Literal["graph", "refused", "module", "conversion"]


@dataclasses.dataclass(frozen=True)
class ReproduceRequest:
    """The smallest script that shows why a target failed in one case of the reference.

    `exported` and `reference` are the folders of those stages, None if they did not finish. `node`,
    `tensor` and `line` are the finding's place. `versions` are the packages of the target by name,
    `reproducer` is the module with the text of scripts for its runtime. `failed`: `export` or
    `build`, if that stage broke. `refused`: the runtime did not load the graph, so only a part that
    it refuses too is looked for.
    """

    source: Source
    contract: Contract
    exported: str | None
    reference: str | None
    case: str | None
    versions: dict[str, str]
    reproducer: str
    node: str | None = None
    tensor: str | None = None
    line: str | None = None
    failed: Literal["export", "build"] | None = None
    refused: bool = False


@dataclasses.dataclass(frozen=True)
class ReproduceResult:
    """The files under the job's output: `reproduce.py` and what it reads. `kind` is None if nothing
    smaller than the whole model shows the fault; `why` says so.

    `operations` are those that the script's model has, `packages` those that it needs, with
    releases. `needs` names the system without which it shows only a part, as `macOS`. `place` is
    where a refused part's last operation is.
    """

    kind: ReproducerKind | None
    why: str = ""
    operations: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    needs: str | None = None
    place: Place = dataclasses.field(default_factory=Place)

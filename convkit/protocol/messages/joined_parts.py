"""Models of several parts: how the parts call each other.

A value is an input of the whole, by its name, or an output of a call, as `call.output`.
"""

import dataclasses

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import Json
from convkit.protocol.messages.evaluation import Evaluation
from convkit.protocol.messages.model_request import Source


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a part. `name` is the part's, unless it is called more than once.

    `inputs` says which value each input of the part gets. Inputs that are missing here are fed in a
    loop, and start as zeros.
    """

    part: str
    name: str
    inputs: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Carried:
    """A value of one pass of a loop that becomes an input of a call in the next pass."""

    value: str
    call: str
    input: str


@dataclasses.dataclass(frozen=True)
class Loop:
    """Calls that are repeated once for each position along `axis`.

    Inputs of the whole with this axis are cut: each pass gets its position.
    """

    axis: str
    carried: tuple[Carried, ...]
    calls: tuple[Call, ...]


@dataclasses.dataclass(frozen=True)
class Flow:
    """The calls in their order, and the values that are the whole's outputs, by output."""

    steps: tuple[Call | Loop, ...]
    outputs: dict[str, str]


@dataclasses.dataclass(frozen=True)
class OriginalPart:
    """The original model of one part."""

    name: str
    source: Source
    contract: Contract


@dataclasses.dataclass(frozen=True)
class JoinedOriginals:
    """The originals of all parts, and how they call each other."""

    flow: Flow
    parts: tuple[OriginalPart, ...]


# The file that joins the built parts of a target, beside a folder for each of them.
JOINED_FILE = "join.json"


@dataclasses.dataclass(frozen=True)
class JoinedModel:
    """Contents of `join.json`: the contract of the whole, its flow, and each part's folder,
    relative to the file.
    """

    format: int
    contract: Contract
    flow: Flow
    parts: dict[str, str]


@dataclasses.dataclass(frozen=True)
class BuiltPart:
    """The built model of one part: the package of its runtime, and the request with which that
    runtime verifies, or times, the part by itself.
    """

    name: str
    runtime: str
    request: Json


@dataclasses.dataclass(frozen=True)
class JoinRequest:
    """Run the built parts together on every case of the whole, and measure the whole's outputs.

    `reference` is the folder of the whole's cases, `limits` are the tolerances by output. With
    `evaluation`, the user's rows run through the whole, too.
    """

    contract: Contract
    flow: Flow
    parts: tuple[BuiltPart, ...]
    reference: str
    limits: dict[str, dict[str, float]]
    budget_seconds: float | None
    evaluation: Evaluation | None = None

"""A benchmark session: one long-lived worker per model, which the host asks for timings in turn.

A worker connects to the Unix socket `address`, sends a `Hello` when its model is loaded, and then
answers each `TimingOrder` with a `Timing`, as JSON lines. The order without a size ends it.
"""

import dataclasses
from typing import Generic

from convkit.protocol.contract import Contract
from convkit.protocol.messages.joined_parts import BuiltPart, Flow, JoinedOriginals
from convkit.protocol.messages.model_request import Device, Sample, Source
from convkit.protocol.messages.requests import OptionsT


@dataclasses.dataclass(frozen=True)
class BenchSize:
    """Inputs of one size: a name, and the sizes of all axes."""

    name: str
    sizes: dict[str, int]


@dataclasses.dataclass(frozen=True)
class BenchOriginalRequest:
    """Time the original model. It also draws the inputs, and writes them to its output folder.

    Without `source`, the original is `joined`: the originals of all parts.
    `graphs` are the built targets that are ONNX files: for each, the module of every node is
    written to the output folder as well, because a runtime's profile only knows nodes.
    """

    source: Source | None
    contract: Contract
    samples: dict[str, Sample]
    seed: int
    sizes: tuple[BenchSize, ...]
    address: str
    threads: int
    graphs: dict[str, str] = dataclasses.field(default_factory=dict)
    joined: JoinedOriginals | None = None


@dataclasses.dataclass(frozen=True)
class BenchRequest(Generic[OptionsT]):
    """Time a built target. `inputs` is the original's output folder, `target` the target's name."""

    contract: Contract
    options: OptionsT
    device: Device
    built: str
    inputs: str
    sizes: tuple[BenchSize, ...]
    address: str
    target: str


@dataclasses.dataclass(frozen=True)
class BenchJoinedRequest:
    """Time the built parts of a target as one model. Each part's request is its `BenchRequest`;
    `inputs` is the output folder of the whole's original.
    """

    contract: Contract
    flow: Flow
    parts: tuple[BuiltPart, ...]
    inputs: str
    sizes: tuple[BenchSize, ...]
    address: str
    target: str


@dataclasses.dataclass(frozen=True)
class Hello:
    """A worker's first message: its model is loaded.

    `first_call_seconds` is the duration of the first call, at the first size.
    """

    load_seconds: float
    first_call_seconds: float


@dataclasses.dataclass(frozen=True)
class TimingOrder:
    """Call the model `calls` times on the inputs of a size; None ends the session."""

    size: str | None
    calls: int = 0


@dataclasses.dataclass(frozen=True)
class Timing:
    """The duration of each call in seconds; `error` is why the model cannot run on that size.

    `waited` is the share of the time in which the model's threads waited for a processor (0 to 1);
    None if the system does not count it.
    """

    seconds: tuple[float, ...]
    error: str | None = None
    waited: float | None = None


@dataclasses.dataclass(frozen=True)
class OperatorCost:
    """The time that a runtime spends in one node, per call.

    `module` is the original's module it came from; empty if unknown. `provider` is where it ran, as
    the runtime names it. `seconds` is the median over the profiled calls, `share` its part of all
    nodes.
    """

    node: str
    operator: str
    module: str
    provider: str
    seconds: float
    share: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where a call's time goes, by the runtime's own profile at one size.

    `operators` are the most expensive nodes, `kinds` the seconds of every operator by its name,
    `fallbacks` the number of nodes that did not run on the requested device.
    """

    size: str
    operators: tuple[OperatorCost, ...]
    kinds: dict[str, float]
    fallbacks: int = 0


@dataclasses.dataclass(frozen=True)
class BenchResult:
    """What a worker knows beyond its timings.

    `peak_memory_bytes` is the process's peak at the end of the timings, before any profiling.
    `size_bytes` is the size of a torch model's weights; None for everything that is a file.
    `unprofiled` says why there is no profile.
    """

    peak_memory_bytes: int
    size_bytes: int | None = None
    profile: Profile | None = None
    unprofiled: str = ""

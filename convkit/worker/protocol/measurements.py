"""What a verification measures: numbers, without limits."""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True)
class TensorMetrics:
    """How one output differs from the reference in one case. Errors are over elements finite on
    both sides.

    `frontier` holds the (|reference|, |error|) pairs on the upper convex hull, so that `max(|error|
    - rtol * |reference|)` is known exactly for every rtol >= 0 without the tensors. Elements at
    padding (see `TensorSpec.mask`) are in none of this but the counts of NaN and infinity:
    `padding_elements` says how many they are, `padding_max_abs` how far they differ.
    `agreement` is the share of elements that are equal, `reference_rms` and `reference_max` are the
    original's root mean square and largest magnitude; NaN in records of older releases.
    """

    output: str
    elements: int
    max_abs: float
    max_rel: float
    mean_abs: float
    rms: float
    cosine: float
    worst_index: tuple[int, ...]
    worst_reference: float
    worst_candidate: float
    nan_reference: int
    nan_candidate: int
    inf_reference: int
    inf_candidate: int
    inf_mismatched: int
    frontier: tuple[tuple[float, float], ...] = ()
    mismatch: str | None = None  # shape or dtype differ: nothing was compared
    padding_elements: int = 0
    padding_max_abs: float = 0.0
    mismatch_kind: Literal["dtype", "shape"] | None = None  # None also in older records
    agreement: float = math.nan
    reference_rms: float = math.nan
    reference_max: float = math.nan


@dataclasses.dataclass(frozen=True)
class CaseMetrics:
    """One case under the built model; `error` holds the runtime's message if it failed to run."""

    case: str
    seconds: float
    outputs: tuple[TensorMetrics, ...]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class ProbeChange:
    """What a probe changes: one input (`perturbed`), or a pair of inputs or outputs.

    `perturbed`: other values. `crossed`: two inputs are exchanged. `merged`: the first one's values
    are fed to the second as well. `outputs`: no input changes, two outputs are compared crosswise.
    """

    kind: Literal["perturbed", "crossed", "merged", "outputs"]
    tensors: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the probe's case: `crossed:a:b`. Tensors' names may hold colons too."""
        return ":".join((self.kind, *self.tensors))


@dataclasses.dataclass(frozen=True)
class ProbeMetrics:
    """What a probe showed, each number a largest absolute difference over all outputs (None: it
    could not be run).

    `moved_reference`, `moved_candidate`: how far the probe moves the original's and the built
    model's outputs away from their own outputs on the base case. `matches_base`: the built model
    under the probe against the original on the base case (small for `crossed`: right when
    exchanged). `matches_probe`: the built model on the base case against the original under the
    probe (small for `merged`: the built model took a's values for b).
    """

    probe: str
    moved_reference: (
        float | None
    )  # for `outputs:a:b`, which changes no input: how far the original's two are apart
    moved_candidate: float | None
    matches_base: float | None
    matches_probe: float | None
    base_error: float | None
    change: ProbeChange | None = None  # None in records of older releases


# padding: more of it was added · masked-values: other values stand at masked positions · batch: a
# row alone in its batch · determinism: the same inputs once more.
InvarianceCheck = Literal["padding", "masked-values", "batch", "determinism"]


@dataclasses.dataclass(frozen=True)
class InvarianceMetrics:
    """How far each model's own outputs are apart in two cases that should give the same, by output.

    `case` is compared with the case `base`; only elements that both cases have count: real
    positions, the one row. In these metrics `reference` means the model's output in the base case,
    `candidate` that in the other.
    """

    check: InvarianceCheck
    case: str
    base: str
    original: tuple[TensorMetrics, ...]
    candidate: tuple[TensorMetrics, ...]


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Nodes that ran on another provider than the one asked for."""

    provider: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SimulatedCase:
    """One case of a low precision that ran on its device, beside the simulation of the same graph.

    `simulation` is the simulation against the original, `agreement` the device against the
    simulation.
    """

    simulation: CaseMetrics
    agreement: CaseMetrics

"""The measurements of a verification, without limits."""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True)
class UnmatchedRow:
    """A row of one model that has no counterpart in the other, along a data axis.

    `index` is its place in the model that has it. `score` is NaN if no output holds scores.
    `margin` is how far the score is from what the other model keeps: 0 at its threshold, infinity
    if there is none.
    """

    kind: Literal["missing", "additional"]
    index: tuple[int, ...]
    score: float
    margin: float


@dataclasses.dataclass(frozen=True)
class RowMetrics:
    """How two sets of rows along a data axis were matched, `reference` and `candidate` in number.

    `unmatched` lists the rows with the largest margins, at most ten, and is filled for one of the
    outputs that share the axis only: the scores, or else the first. So is `disorder`: how much
    greater a later score is than an earlier one, where the original's never is.
    """

    axis: str
    reference: int
    candidate: int
    matched: int
    unmatched: tuple[UnmatchedRow, ...] = ()
    disorder: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if every row has a counterpart."""
        return self.matched == self.reference == self.candidate


@dataclasses.dataclass(frozen=True)
class ErrorAtScale:
    """The largest error among the elements of one scale, where it is, and both values there.

    The `scale` is a power of two: at most the size of the values around the element, more than half
    of it (see `convkit.worker.metrics.errors_by_scale`).
    """

    scale: float
    error: float
    index: tuple[int, ...]
    reference: float
    candidate: float


@dataclasses.dataclass(frozen=True)
class TensorMetrics:
    """How one output differs from the reference in one case. Errors are over elements finite on
    both sides.

    `frontier` holds the (|reference|, |error|) pairs on the upper convex hull, so that `max(|error|
    - rtol * |reference|)` is known exactly for every rtol >= 0 without the tensors. Elements at
    padding (see `TensorSpec.mask`) are in none of this but the counts of NaN and infinity:
    `padding_elements` says how many they are, `padding_max_abs` how far they differ.
    `agreement` is the share of elements that are equal, `reference_rms` and `reference_max` are the
    original's root mean square and largest magnitude, `nrmse` is `rms` in parts of `reference_rms`,
    and `differing_max` is the original's largest magnitude among elements that differ (0: none do);
    NaN in records of older releases, as are the original's smallest value, largest value and mean.
    `by_scale` has the largest errors of a float32 output at each
    scale, both rising; empty where all elements have one, `differing_max`, and in older records.
    With `rows`, the figures cover the rows that both models return. `nan_agreed` is None where NaN
    agrees with nothing. In a case whose inputs' NaN the original passes on, it counts the elements
    that are NaN on both sides, and `nan_reference` and `nan_candidate` those that are on one.
    `scored` is the share of elements that are not equal, but are what the candidate's own scores,
    which another output holds, choose, as the original's elements are what its scores choose.
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
    nrmse: float = math.nan
    differing_max: float = math.nan
    by_scale: tuple[ErrorAtScale, ...] = ()
    rows: RowMetrics | None = None
    reference_low: float = math.nan
    reference_high: float = math.nan
    reference_mean: float = math.nan
    nan_agreed: int | None = None
    scored: float = 0.0

    @property
    def undefined(self) -> int:
        """The elements that are NaN in the original, which nothing can match."""
        return self.nan_reference if self.nan_agreed is None else 0

    @property
    def lost_nan(self) -> int:
        """The elements in which the original passes NaN on, and the candidate does not."""
        return self.nan_reference - self.undefined


@dataclasses.dataclass(frozen=True)
class UnpaddedMetrics:
    """How an output differs at positions that the input `mask` does not mark as padding."""

    mask: str
    metrics: TensorMetrics


@dataclasses.dataclass(frozen=True)
class CaseMetrics:
    """One case run on the built model; `error` is the runtime's message if the run failed.

    `unpadded` has the outputs again without padding, for those that are compared at padding, too,
    and differ most there.
    """

    case: str
    seconds: float
    outputs: tuple[TensorMetrics, ...]
    error: str | None = None
    unpadded: tuple[UnpaddedMetrics, ...] = ()


@dataclasses.dataclass(frozen=True)
class ProbeChange:
    """The change a probe makes: to one input (`perturbed`), or to a pair of inputs or outputs.

    `perturbed`: different values. `crossed`: two inputs are swapped. `merged`: the first input's
    values are also fed to the second. `outputs`: no input changes; two outputs are compared with
    each other.
    """

    kind: Literal["perturbed", "crossed", "merged", "outputs"]
    tensors: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the probe's case: `crossed:a:b`. Tensor names may also contain colons."""
        return ":".join((self.kind, *self.tensors))


@dataclasses.dataclass(frozen=True)
class ProbeMetrics:
    """Results of a probe: each number is a largest absolute difference over all outputs (None: the
    probe could not run).

    `moved_reference`, `moved_candidate`: how far the probe moves the original's and the built
    model's outputs from their own outputs on the base case. `matches_base`: the built model on the
    probe vs. the original on the base case (small for `crossed`: correct when swapped).
    `matches_probe`: the built model on the base case vs. the original on the probe (small for
    `merged`: the built model used a's values for b).
    """

    probe: str
    # For `outputs:a:b`, which changes no input: the difference between the original's two outputs.
    moved_reference: float | None
    moved_candidate: float | None
    matches_base: float | None
    matches_probe: float | None
    base_error: float | None
    change: ProbeChange | None = None  # None in records of older releases
    # The most that the probe moves one of the original's outputs, in parts of that output's RMS on
    # the base case. None in records of older releases.
    moved_share: float | None = None


@dataclasses.dataclass(frozen=True)
class ResultMetrics:
    """What an app makes of an output in one case: `differing` of `rows` get another label, other
    detections or another text than from the original's outputs.

    `margin` is the largest change of the output `scores`, in its own unit, that any of these needs;
    `example` describes that row. Infinite if no change of the scores would do.
    """

    case: str
    output: str
    scores: str
    rows: int
    differing: int
    margin: float = 0.0
    example: str = ""


# padding: more padding was added · masked-values: values at masked positions changed · batch: one
# row was run alone · determinism: the same inputs were run again
InvarianceCheck = Literal["padding", "masked-values", "batch", "determinism"]


@dataclasses.dataclass(frozen=True)
class InvarianceMetrics:
    """How far each model's own outputs differ between two cases that should agree, by output.

    `case` is compared with the case `base`, on the elements they share: real positions, the single
    row. In these metrics, `reference` is the model's output in the base case and `candidate` its
    output in the other case.
    """

    check: InvarianceCheck
    case: str
    base: str
    original: tuple[TensorMetrics, ...]
    candidate: tuple[TensorMetrics, ...]


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Nodes that ran on a provider other than the requested one."""

    provider: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SimulatedCase:
    """One low-precision case that ran on its device, compared with a simulation of the same graph.

    `simulation` compares the simulation with the original, `agreement` the device with the
    simulation.
    """

    simulation: CaseMetrics
    agreement: CaseMetrics

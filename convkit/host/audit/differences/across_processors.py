"""How the figures of two runs on different processors compare: equal within rounding or not, or not
comparable at all. Pure.

Kernels of another processor add the same products in another order, so a sum's last bits differ.
Integer kernels can differ by far more: one kind clips sums that the other keeps.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import Literal, get_args

from convkit.host.record.processor_record import IntegerKernels, RecordedProcessor
from convkit.host.record.run_record import TargetReport, Verification
from convkit.protocol.contract import Contract
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import float32_unit

# The class of what was recorded on another processor and is equal within rounding.
WITHIN_ROUNDING: Literal["WITHIN_ROUNDING"] = "WITHIN_ROUNDING"
# An error made of rounding may be up to twice as large, or half: the original and the built model
# are two evaluations in two orders, so their distance measures what another order changes, and a
# third order is as far from either.
TIMES = 2.0
# Two evaluations in different orders differ by up to ten units in the last place of float32, which
# 400 independent roundings add up to (half a unit each, times sqrt(400)): what the default
# tolerance allows as rounding (`ulps` in protocol/metrics/metric_registry.py). On another
# processor, both the original and the built model are evaluated in another order, so their distance
# changes by up to twice that. It decides if an error is smaller, and perhaps 0. Measured with
# onnxruntime 1.31 and AVX-512, AVX2: a softmax over 1,000 classes is off by 12 units, 1; four
# encoder layers by 5, 6.
ULPS = 20.0
# A cosine is compared by its distance from 1; below this, float64 itself rounds.
COSINE_NOISE = 1e-9
# These figures follow from errors of single elements. Relative ones have no bound near zero, so
# they prove nothing by themselves, and follow the errors of their output.
ERRORS = ("max_abs", "mean_abs", "rms")

# How outputs compare, best first; those of different integer kernels say nothing about each other.
Relation = Literal["equal", "WITHIN_ROUNDING", "incomparable", "different"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
# What must be the same however additions are ordered.
_COUNTS = ("elements", "nan_reference", "nan_candidate", "inf_reference", "inf_candidate")


@dataclasses.dataclass(frozen=True)
class Processors:
    """The processors of two runs, the earlier one first."""

    before: RecordedProcessor
    now: RecordedProcessor

    @property
    def differ(self) -> bool:
        """True if kernels selected on one processor are not selected on the other."""
        return not self.before.computes_as(self.now)


def within_rounding(metric: str, before: float, now: float, largest: float) -> bool:
    """Return True if a figure's change can come from another order of additions.

    `metric` is one of `ERRORS`, or `cosine`; `largest` is the largest magnitude of the original's
    output, NaN if unknown. False for NaN and infinity on either side.
    """
    if not (math.isfinite(before) and math.isfinite(now)):
        return False
    if metric == "cosine":
        small, large = sorted((1.0 - before, 1.0 - now))
        return large <= max(small * TIMES, small + COSINE_NOISE)
    small, large = sorted((before, now))
    return small >= 0 and large <= max(small * TIMES, small + ULPS * float32_unit(largest))


def integer_kernels(
    target: TargetReport, verification: Verification, processor: RecordedProcessor
) -> IntegerKernels | None:
    """Return the integer kernels that a verification's figures depend on; None if they do not, or
    if that is unknown.

    Weights of 4 bits, simulations, which convkit computes by itself, and products that saturate
    nowhere depend on none.
    """
    if verification.family is not None:
        return verification.family
    if verification.families_agree:
        return None
    if "int8" not in target.precision or target.device != "cpu":
        return None
    return processor.integer_kernels if verification.evidence == "device" else None


def counterpart(own: str, kernels: str | None, others: Collection[str]) -> str | None:
    """Return the id among `others` of the verification that compares with one of an id and integer
    kernels; None if there is none. Earlier releases verified one family of processors only.
    """
    stage = own.partition(", ")[0]
    return next((each for each in (own, f"{stage}, {kernels}", stage) if each in others), None)


def output_relation(before: TensorMetrics, now: TensorMetrics, *, whole: bool) -> Relation:
    """Return how one output's figures on one processor compare with those on another.

    `whole`: the output holds whole numbers, which rounding does not change a little.
    """
    pairs = {
        name: (getattr(before, name), getattr(now, name)) for name in (*ERRORS, "cosine", *_COUNTS)
    }
    if all(a == b or (a != a and b != b) for a, b in pairs.values()):  # noqa: PLR0124 - NaN
        return "equal"
    if whole or before.mismatch != now.mismatch:
        return "different"
    if any(a != b for name, (a, b) in pairs.items() if name in _COUNTS):
        return "different"
    largest = min(before.reference_max, now.reference_max)
    for name in (*ERRORS, "cosine"):
        a, b = pairs[name]
        undefined = name == "cosine" and math.isnan(a) and math.isnan(b)  # one side is all zeros
        if not undefined and not within_rounding(name, a, b, largest):
            return "different"
    return WITHIN_ROUNDING


def target_relation(
    before: TargetReport, now: TargetReport, processors: Processors, whole: Collection[str]
) -> Relation:
    """Return how a target's figures on two processors compare: the worst of all outputs of all
    cases. What only one of them has is a difference, and so is nothing at all: it proves nothing.

    `whole` are the outputs of whole numbers.
    """
    found: list[Relation] = []
    later = {each.id: each for each in now.verifications}
    for verification in before.verifications:
        kernels = integer_kernels(before, verification, processors.before)
        same = counterpart(verification.id, kernels, later)
        if same is None:
            return "different"
        other = later[same]
        if kernels != integer_kernels(now, other, processors.now):
            found.append("incomparable")
            continue
        mine, theirs = outputs_of(verification), outputs_of(other)
        if mine.keys() != theirs.keys():
            return "different"
        found += [output_relation(mine[key], theirs[key], whole=key[1] in whole) for key in mine]
    return max(found, key=RELATIONS.index, default="different")


def outputs_of(verification: Verification) -> dict[tuple[str, str], TensorMetrics]:
    """Return a verification's figures by case and output."""
    return {
        (case.case, output.output): output.metrics
        for case in verification.cases
        for output in case.outputs
    }


def whole_outputs(contract: Contract) -> frozenset[str]:
    """Return the outputs that hold whole numbers, truth values or texts."""
    return frozenset(each.name for each in contract.outputs if "float" not in each.dtype)

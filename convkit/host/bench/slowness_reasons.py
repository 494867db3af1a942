"""Usual reasons why a built model is slower or larger than hoped, from its runtime's profile. Pure.

Each reason is a fact that was measured in this session, not a guess: a share of the time, a count
of nodes, a ratio at another size.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from convkit.host.record.bench_record import GoalVerdict, ModelFigures

# A kind of operator that takes less than this share of the time explains nothing.
_MATTERS = 0.1
_HALF = ("float16", "bfloat16")
_CASTS = ("Cast", "CastLike", "Convert")
_QUANTIZING = ("QuantizeLinear", "DequantizeLinear", "FakeQuantize")
_DYNAMIC = (
    "DynamicQuantizeLinear",
    "DynamicQuantizeMatMul",
    "MatMulIntegerToFloat",
    "MatMulInteger",
)


@dataclasses.dataclass(frozen=True)
class Reason:
    """A reason, as text for a message, and what to do about it."""

    kind: str
    text: str
    remedy: str


def reasons(
    target: ModelFigures, original: ModelFigures, verdict: GoalVerdict, threads: int
) -> list[Reason]:
    """Return what is known about why a goal is missed, the most telling first."""
    if verdict.figure == "size":
        return _of_size(target, original)
    if verdict.figure == "memory" or target.profile is None:
        return []
    profile = target.profile
    total = sum(profile.kinds.values())
    found = []
    if profile.fallbacks:
        found.append(
            Reason(
                "fallback",
                f"{profile.fallbacks} nodes ran on another provider than {target.device}'s",
                "Look for an operator or element type without a kernel on the device (E102).",
            )
        )
    found += _conversions(target, profile.kinds, total)
    if any(kind in profile.kinds for kind in _DYNAMIC) and _small(target, verdict):
        found.append(
            Reason(
                "small-batch",
                "dynamic quantization measures the range of every activation in every call, which "
                "pays off only with larger inputs, as the other sizes show",
                "Use static-int8, or keep float32 for batches as small as this.",
            )
        )
    found += _low_on_cpu(target, profile.kinds, total)
    if not found and threads == 1:
        found.append(
            Reason(
                "threads",
                "everything ran on one thread, so the runtime's parallel kernels have no effect",
                "Measure with more threads: bench.threads.",
            )
        )
    return found


def _conversions(
    target: ModelFigures, kinds: Mapping[str, float], total: float
) -> Iterator[Reason]:
    """Name time that goes into changing element types."""
    casts = _share(kinds, _CASTS, total)
    if casts >= _MATTERS:
        yield Reason(
            "casts",
            f"casts between element types take {casts:.0%} of the time: the device has no kernels"
            f" for some operators in {target.precision}",
            "Use float32 on this device, or a device that computes in this precision.",
        )
    pairs = _share(kinds, _QUANTIZING, total)
    if pairs >= _MATTERS:
        yield Reason(
            "unfused",
            f"QuantizeLinear and DequantizeLinear that were not fused take {pairs:.0%} of the time",
            "Quantize only operators that this runtime has integer kernels for.",
        )


def _of_size(target: ModelFigures, original: ModelFigures) -> list[Reason]:
    if target.precision == "float32" and original.precision in ("float16", "bfloat16"):
        return [
            Reason(
                "wider-weights",
                f"the original's weights are in {original.precision}, the target's in float32",
                "Set a precision for the target, such as float16.",
            )
        ]
    if target.precision == "float32":
        return [
            Reason(
                "same-weights",
                "the weights are in float32, as the original's",
                "Set a precision for the target, such as float16 or dynamic-int8.",
            )
        ]
    return []


def _low_on_cpu(target: ModelFigures, kinds: Mapping[str, float], total: float) -> list[Reason]:
    """Return that a half precision brings a CPU nothing, if nothing nearer was found."""
    half = next((each for each in _HALF if target.precision.startswith(each)), None)
    if target.device != "cpu" or half is None or _share(kinds, _CASTS, total) >= _MATTERS:
        return []
    return [
        Reason(
            "half-on-cpu",
            f"most CPUs have no arithmetic in {half}: the runtime widens the weights",
            "Use float32 or int8 on the CPU.",
        )
    ]


def _small(target: ModelFigures, verdict: GoalVerdict) -> bool:
    """Return True if the target does better at a size with more elements."""
    here = target.at(verdict.size or "")
    others = [each for each in target.sizes if each.size != verdict.size and "p50" in each.ratios]
    if here is None or "p50" not in here.ratios:
        return False
    return any(
        sum(each.sizes.values()) > sum(here.sizes.values())
        and each.ratios["p50"].value < here.ratios["p50"].value
        for each in others
    )


def _share(kinds: Mapping[str, float], names: tuple[str, ...], total: float) -> float:
    return sum(kinds.get(name, 0.0) for name in names) / total if total else 0.0

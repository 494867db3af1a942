"""The messages of low-precision diagnoses, shared by graphs and Core ML programs."""

from convkit.protocol.contract import DType
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json
from convkit.worker.precision.diagnosis.low_precision_remedies import PrecisionRemedies, in_module


def out_of_range(name: str, value: float | None, dtype: DType, limit: float, becomes: str) -> str:
    """Return the beginning of N201: the constant that a precision cannot represent, and the result.

    `value` is the constant's extreme; `becomes` names the stored value.
    """
    return f"constant {name!r} ({value:.6g}) is outside {dtype}'s range ({limit:.6g}) and {becomes}"


def harm(case: str | None, nan_at: str | None, *, absorbed: bool = False) -> str:
    """Return the end of N201: `nan_at` describes where NaN first occurs in the case, if at all. If
    it is `absorbed`, outputs are finite.
    """
    if case is None:
        return "; no output suffers in any case"
    if absorbed:
        return f"{ABSORBED} in case {case!r}"
    if nan_at is None:
        return f"; outputs are then not finite in case {case!r}"
    return f"; {nan_at} then returns NaN in case {case!r}"


def rounded_to_zero(name: str, what: str, dtype: DType, case: str) -> str:
    """Return N203's message: `what` describes the operand that became zero."""
    return f"{dtype} rounds {what} to zero, so {name} is not finite in case {case!r}"


def overflow(name: str, dtype: DType, reached: str, limit: float, case: str) -> str:
    """Return N202's message for a tensor beyond the range; `reached` is its largest magnitude."""
    why = f"it reaches {reached}; the limit is {limit:.6g}"
    return f"{name} overflows {dtype}: {why}, in case {case!r}"


def not_finite(name: str, dtype: DType, although: str, case: str) -> str:
    """Return N202's message for a tensor that is not finite, although no tensor before it is
    large.
    """
    return f"{name} is not finite in {dtype}, although {although}, in case {case!r}"


# What N202 adds if the outputs do not show it.
ABSORBED = "; later operations absorb it, so outputs are finite but wrong"


def masked_rows(
    place: Place, rows: int, total: int, dtype: DType, remedies: PrecisionRemedies, **more: Json
) -> Finding:
    """Return N205 for a softmax at `place` with `rows` of its `total` rows fully masked."""
    message = (
        f"{rows} of {total} rows of the softmax {in_module(place.module or '')} are fully masked in"
        f" case {place.case!r}: every position is -inf in {dtype}, and the softmax of such a row is"
        " NaN"
    )
    return Finding("N205", message, place, {"rows": rows, **more}, remedies.finite_mask())


def lost_variance(name: str, spread: float, before: str, dtype: DType, case: str) -> str:
    """Return N204's message; `before` describes where the tensor still varies by `spread`."""
    return f"{name} varies by {spread:.6g} {before} but not at all in {dtype}, in case {case!r}"


def wide_sum(name: str, place: Place, count: int, largest: float) -> Finding:
    """Return N215 for an operator that divides a sum of `count` values, `largest` in a case, by
    their number.
    """
    where = ", ".join(
        part
        for part in (
            f"module {place.module}" if place.module else "",
            f"at {place.source}" if place.source else "",
        )
        if part
    )
    return Finding(
        "N215",
        f"{name}{f' ({where})' if where else ''} adds up {count} values to {largest:.3g}, beyond"
        f" float16's {LIMITS['float16'].largest:.0f}: its result is infinite on devices that add up"
        " in float16, such as Apple's Neural Engine and other NPUs. CPUs and NVIDIA's GPUs add up"
        " in float32",
        place,
        {"sum": largest, "count": count},
        Remedy(
            "For such a device, take the mean in two steps, one axis after the other, or keep the"
            " module in float32. convkit has tried neither: this machine has no such device."
        ),
    )

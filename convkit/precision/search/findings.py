"""Findings on a precision before anything is built: modules that will overflow, what a search
decided.
"""

from collections.abc import Sequence

from convkit.codec import Json, encode
from convkit.findings.model import Finding, Place, Remedy
from convkit.float_limits import LIMITS
from convkit.worker.protocol import LowPrecision, ModulePrecision, PlanRound


def headroom_findings(modules: Sequence[ModulePrecision], precision: LowPrecision) -> list[Finding]:
    """Return a note on the modules in low precision that float32's ranges say will overflow."""
    beyond = [row for row in modules if row.low and row.headroom is not None and row.headroom < 1]
    if not beyond:
        return []
    beyond.sort(key=lambda row: row.headroom or 0.0)
    worst = beyond[0]
    others = f" (and {len(beyond) - 1} modules more)" if len(beyond) > 1 else ""
    return [
        Finding(
            "N210",
            f"{worst.tensor!r} in {worst.module or 'the root'}{others} reaches {worst.largest:.6g}"
            f" in float32, beyond {precision.default}'s {LIMITS[precision.default].largest:.6g}:"
            " verification shows whether it matters",
            Place(tensor=worst.tensor, module=worst.module or None, case=worst.case or None),
            {"modules": {row.module: row.headroom for row in beyond}},
        )
    ]


def searched_finding(precision: LowPrecision, rounds: Sequence[PlanRound], *, met: bool) -> Finding:
    """Return what the search found: N208, or N209 where nothing meets the tolerance."""
    change: dict[str, Json] = {"target.precision": _written(precision)}
    shown: Json = [encode(each) for each in rounds]
    kept = (", ".join(precision.keep_float32) or "nothing") + " in float32"
    if precision.saturate:
        kept += ", with constants beyond the range saturated,"
    evidence: dict[str, Json] = {"keep_float32": list(precision.keep_float32), "rounds": shown}
    if met:
        message = f"keep_float32: auto keeps {kept} and meets the tolerance in simulation"
        return Finding(
            "N208", message, Place(), evidence, Remedy("Write it into the recipe.", change)
        )
    last = rounds[-1]
    how_far = (
        "NaN or infinity" if last.overshoot is None else f"{last.overshoot:.3g} times the tolerance"
    )
    return Finding(
        "N209",
        f"no plan was found that meets the tolerance: keeping {kept} case {last.case!r} gives"
        f" {how_far}",
        Place(case=last.case),
        evidence,
        Remedy(
            "Name modules under keep_float32 yourself, or set the tolerance to what you can"
            " justify."
        ),
    )


def _written(precision: LowPrecision) -> Json:
    """Return a precision as a recipe would have it."""
    written: dict[str, Json] = {
        "default": precision.default,
        "keep_float32": list(precision.keep_float32),
    }
    return written | ({"saturate": True} if precision.saturate else {})

"""Findings about a precision before anything is built: modules that will overflow, and a search's
decision.
"""

import math
from collections.abc import Sequence

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.messages import LowPrecision, ModulePrecision, PlanRound
from convkit.protocol.metrics.number_text import distinct_texts
from convkit.protocol.module_naming import in_words
from convkit.worker.precision.search.float32_modules import FoundModules


def headroom_findings(modules: Sequence[ModulePrecision], precision: LowPrecision) -> list[Finding]:
    """Return a note on the low-precision modules that will overflow, judging by their float32
    ranges.
    """
    beyond = [row for row in modules if row.low and row.headroom is not None and row.headroom < 1]
    if not beyond:
        return []
    beyond.sort(key=lambda row: row.headroom or 0.0)
    worst = beyond[0]
    others = f" (and {len(beyond) - 1} more modules)" if len(beyond) > 1 else ""
    largest, limit = distinct_texts(worst.largest, LIMITS[precision.default].largest, digits=6)
    return [
        Finding(
            "N210",
            f"{worst.tensor!r} in {worst.module or 'the root'}{others} reaches {largest}"
            f" in float32, which exceeds {precision.default}'s {limit}; verification shows"
            " whether it matters",
            Place(tensor=worst.tensor, module=worst.module or None, case=worst.case or None),
            {"modules": {row.module: row.headroom for row in beyond}},
        )
    ]


def searched_finding(
    precision: LowPrecision, found: FoundModules, unheld: Sequence[str] = ()
) -> Finding:
    """Return a search's result: N208, N207 if it leaves nothing in low precision, or N209 if
    nothing meets the tolerance. `unheld` is what the type cannot hold of what is kept, in words.
    """
    evidence: dict[str, Json] = {
        "keep_float32": list(precision.keep_float32),
        "rounds": [encode(each) for each in found.rounds],
        "unheld": list(unheld),
        "inputs": {
            name: cost if math.isfinite(cost) else None for name, cost in found.inputs.items()
        },
    }
    kept = (in_words(precision.keep_float32) or "nothing") + " in float32"
    if precision.saturate:
        kept += ", with out-of-range constants saturated,"
    if not found.met:
        last = found.rounds[-1]
        with_what = "even with everything in float32" if found.keeps_all else f"with {kept}"
        return Finding(
            "N209",
            f"no plan meets the tolerance: {with_what} the error of case {last.case!r} is"
            f" {_how_far(last)}",
            Place(case=last.case),
            evidence,
            Remedy(
                "Name modules under keep_float32 yourself, or relax the tolerance if you can"
                " justify it."
            ),
        )
    why = _why(precision.default, found, unheld)
    if found.keeps_all:
        first = found.rounds[0]
        return Finding(
            "N207",
            f"nothing is left to compute in {precision.default}: keep_float32: auto keeps {kept}."
            f" With none of it, the error of case {first.case!r} is {_how_far(first)}{why}",
            Place(case=first.case),
            evidence,
            Remedy("Set precision: float32.", {"target.precision": "float32"}, proven=True),
        )
    return Finding(
        "N208",
        f"keep_float32: auto keeps {kept} and meets the tolerance in simulation{why}",
        Place(),
        evidence,
        Remedy(
            "Write this precision into the recipe.",
            {"target.precision": _written(precision)},
            proven=True,
        ),
    )


def _how_far(attempt: PlanRound) -> str:
    if attempt.overshoot is None:
        return "NaN or infinity"
    return f"{attempt.overshoot:.3g} times the tolerance"


def _why(low: str, found: FoundModules, unheld: Sequence[str]) -> str:
    """Return what a type cannot hold of what is kept, as the end of a sentence."""
    said = ""
    if unheld:
        verb = "are" if len(unheld) > 1 else "is"
        said += f"; in it {verb} {', and '.join(unheld)}, which {low} cannot hold"
    if found.inputs:
        worst = max(found.inputs, key=lambda name: found.inputs[name])
        said += (
            f"; rounding the input {worst!r} to {low} alone costs {found.inputs[worst]:.3g} times"
            " the tolerance: its steps are too coarse, whatever computes with it"
        )
    return said


def _written(precision: LowPrecision) -> Json:
    """Return a precision as written in a recipe."""
    written: dict[str, Json] = {
        "default": precision.default,
        "keep_float32": list(precision.keep_float32),
    }
    return written | ({"saturate": True} if precision.saturate else {})

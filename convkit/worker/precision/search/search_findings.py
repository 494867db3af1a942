"""Findings about a precision before anything is built: modules that will overflow, and a search's
decision.
"""

import math
from collections.abc import Mapping, Sequence

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.messages import LowPrecision, ModulePrecision, PlanRound
from convkit.protocol.metrics.number_text import distinct_texts
from convkit.protocol.module_naming import in_words


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
    precision: LowPrecision,
    rounds: Sequence[PlanRound],
    *,
    met: bool,
    inputs: Mapping[str, float] | None = None,
    unheld: Sequence[str] = (),
) -> Finding:
    """Return a search's result: N208, or N209 if nothing meets the tolerance. `inputs` exceed it by
    being rounded, by a factor. `unheld` is what the type cannot hold of what is kept, in words.
    """
    change: dict[str, Json] = {"target.precision": _written(precision)}
    shown: Json = [encode(each) for each in rounds]
    kept = (in_words(precision.keep_float32) or "nothing") + " in float32"
    if precision.saturate:
        kept += ", with out-of-range constants saturated,"
    evidence: dict[str, Json] = {"keep_float32": list(precision.keep_float32), "rounds": shown}
    if met:
        message = f"keep_float32: auto keeps {kept} and meets the tolerance in simulation"
        if unheld:
            verb = "are" if len(unheld) > 1 else "is"
            message += (
                f"; in it {verb} {', and '.join(unheld)}, which {precision.default} cannot hold"
            )
            evidence["unheld"] = list(unheld)
        if inputs:
            worst = max(inputs, key=lambda name: inputs[name])
            message += (
                f"; rounding the input {worst!r} to {precision.default} alone costs"
                f" {inputs[worst]:.3g} times the tolerance: its steps are too coarse, whatever"
                " computes with it"
            )
            evidence["inputs"] = {
                name: cost if math.isfinite(cost) else None for name, cost in inputs.items()
            }
        return Finding(
            "N208",
            message,
            Place(),
            evidence,
            Remedy("Write this precision into the recipe.", change, proven=True),
        )
    last = rounds[-1]
    how_far = (
        "NaN or infinity" if last.overshoot is None else f"{last.overshoot:.3g} times the tolerance"
    )
    return Finding(
        "N209",
        f"no plan meets the tolerance: with {kept} the error of case {last.case!r} is {how_far}",
        Place(case=last.case),
        evidence,
        Remedy(
            "Name modules under keep_float32 yourself, or relax the tolerance if you can justify"
            " it."
        ),
    )


def _written(precision: LowPrecision) -> Json:
    """Return a precision as written in a recipe."""
    written: dict[str, Json] = {
        "default": precision.default,
        "keep_float32": list(precision.keep_float32),
    }
    return written | ({"saturate": True} if precision.saturate else {})

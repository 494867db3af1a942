"""`keep_float32: auto` of a quantised target: what the precision stage decides, and what it says of
it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.cases.judged import JudgedCase
from convkit.codec import Json, encode
from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.limits import Limits
from convkit.precision.quantization.choosing import Kept, choose_kept
from convkit.precision.quantization.sensitivity import KEPT, table
from convkit.worker.protocol import Quantization

Feeds = Mapping[str, np.ndarray]

_SHOWN = 10


def decide_quantization(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    calibration_feeds: Sequence[Feeds] | None,
) -> tuple[Quantization, Kept, list[Finding]]:
    """Work out what stays in float32; return the quantisation with it, the search, and N208 or
    N209.

    What the quantiser itself finds is for the build to say, but for what leaves nothing to decide.
    """
    kept = choose_kept(source, quantization, cases, limits, calibration_feeds)
    decided = quantization.keeping(kept.patterns)
    return decided, kept, [_searched(kept)]


def _searched(kept: Kept) -> Finding:
    last = kept.rounds[-1]
    evidence: dict[str, Json] = {
        "keep_float32": list(kept.patterns),
        "rounds": [encode(each.as_protocol()) for each in kept.rounds],
        "modules": table(kept.sensitivity.modules[:_SHOWN]) if kept.sensitivity is not None else [],
    }
    names = ", ".join(kept.patterns) or "nothing"
    if kept.met:
        return Finding(
            "N208",
            f"keep_float32: auto keeps {names} in float32 and meets the tolerance, quantised and"
            " measured",
            Place(),
            evidence,
            Remedy("Write it into the recipe.", {KEPT: list(kept.patterns)}),
        )
    factor = last.as_protocol().overshoot
    how_far = "NaN or infinity" if factor is None else f"{factor:.3g} times the tolerance"
    if last.met:
        how_far = f"{how_far}, with nothing quantised"
    return Finding(
        "N209",
        f"no plan was found that meets the tolerance: keeping {names} in float32, case"
        f" {last.case!r} gives {how_far}",
        Place(case=last.case or None),
        evidence,
        Remedy(
            "Name modules under keep_float32 yourself, or set the tolerance to what you can"
            " justify."
        ),
    )

"""Detects outputs that lost their information: constant when the original's vary. Independent of
the tolerance.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.metrics.tensor_metrics import as_float64

# The original's output varies if its spread in a case is at least this fraction of its largest
# magnitude over all cases: far above rounding in any precision, and above the step of 8-bit
# quantization (1/255).
_VARIES = 0.05

# The built model's output counts as constant if at most this fraction of the original's spread is
# left. A model that is merely inaccurate keeps most of it.
_LEFT = 1e-3

# Elements per chunk, as in the metrics.
_CHUNK = 1 << 15


@dataclasses.dataclass(frozen=True)
class Spread:
    """The spread of an output's values in a case, max minus min: (original, built model).

    `elements` covers all elements; `rows` is the largest spread of any element across rows (None:
    fewer than two rows). `magnitude` is the original's largest magnitude.
    """

    case: str
    output: str
    magnitude: float
    elements: tuple[float, float]
    rows: tuple[float, float] | None


def measure_spread(
    case: str,
    output: str,
    reference: np.ndarray,
    candidate: np.ndarray,
    padding: np.ndarray | None,
    *,
    rows: bool,
) -> Spread | None:
    """Return the spreads of one output; None if they are not meaningful.

    That is the case if the shapes differ, the dtype is not a float, there are fewer than two
    elements, or values are not finite (other checks report that). Elements at `padding` (see
    `metrics.compare`) are skipped. `rows`: the first dimension is the rows'. Memory-mapped tensors
    are read in chunks.
    """
    fractions = reference.dtype.kind in "fV" and candidate.dtype.kind in "fV"
    if not fractions or reference.shape != candidate.shape or reference.size < 2:
        return None
    count = reference.shape[0] if rows and reference.ndim else 1
    flat = [np.asarray(values).reshape(count, -1) for values in (reference, candidate)]
    # A broadcast view: the padding's shape is a prefix of the tensor's.
    live = None if padding is None else ~padding.reshape(count, -1)
    elements_each = 1 if live is None else flat[0].shape[1] // live.shape[1]
    extremes = [_Extremes(), _Extremes()]
    for start in range(0, flat[0].shape[1], max(1, _CHUNK // count)):
        columns = slice(start, min(start + max(1, _CHUNK // count), flat[0].shape[1]))
        here = (
            None
            if live is None
            else live[:, np.arange(columns.start, columns.stop) // elements_each]
        )
        for one, values in zip(extremes, flat, strict=True):
            one.add(as_float64(np.ascontiguousarray(values[:, columns])), here)
    original, built = extremes
    if not (original.is_finite and built.is_finite):
        return None
    among_rows = (original.rows, built.rows) if count > 1 else None
    return Spread(case, output, original.magnitude, (original.spread, built.spread), among_rows)


class _Extremes:
    """Running minimum and maximum."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf
        self.rows = 0.0
        self.is_finite = True

    def add(self, values: np.ndarray, live: np.ndarray | None) -> None:
        chosen = values if live is None else values[live]
        if not chosen.size:
            return
        self.is_finite = self.is_finite and bool(np.isfinite(chosen).all())
        self._low, self._high = (
            min(self._low, float(chosen.min())),
            max(self._high, float(chosen.max())),
        )
        columns = values if live is None else values[:, live.all(axis=0)]
        if columns.size and self.is_finite:
            self.rows = max(self.rows, float((columns.max(axis=0) - columns.min(axis=0)).max()))

    @property
    def spread(self) -> float:
        return max(0.0, self._high - self._low)

    @property
    def magnitude(self) -> float:
        return max(abs(self._low), abs(self._high)) if self._low <= self._high else 0.0


def collapse_findings(spreads: Sequence[Spread]) -> list[Finding]:
    """Return N304 for each output that is constant in a case in which the original's varies, at the
    first such case.
    """
    findings: dict[str, Finding] = {}
    for output in dict.fromkeys(spread.output for spread in spreads):
        own = [spread for spread in spreads if spread.output == output]
        magnitude = max(spread.magnitude for spread in own)
        for spread in own:
            if output in findings:
                break
            if _collapsed(spread.elements, magnitude):
                findings[output] = _finding(spread, "elements", spread.elements)
            elif spread.rows is not None and _collapsed(spread.rows, magnitude):
                findings[output] = _finding(spread, "rows", spread.rows)
    return list(findings.values())


def _collapsed(spread: tuple[float, float], magnitude: float) -> bool:
    original, built = spread
    return original > _VARIES * magnitude and built <= _LEFT * original


def _finding(
    spread: Spread, across: Literal["elements", "rows"], found: tuple[float, float]
) -> Finding:
    original, built = found
    what = "is constant" if across == "elements" else "is the same in every row"
    return Finding(
        "N304",
        f"output {spread.output!r} {what} in case {spread.case!r}: its values span {built:.3g},"
        f" the original's span {original:.3g}",
        Place(tensor=spread.output, case=spread.case),
        {"across": across, "spread": built, "spread_original": original},
        Remedy(
            (
                "Look for an overflow or underflow on the way to the output. In a low precision,"
                " keep its module in float32."
            )
            if across == "elements"
            else (
                "Look for an input that became a constant in the export, or for an axis that was"
                " reduced."
            )
        ),
    )

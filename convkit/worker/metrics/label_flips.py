"""Explains labels that differ by the scores they were chosen from, where the model returns both."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, is_whole
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseMetrics
from convkit.worker.metrics.scored_labels import chosen_along
from convkit.worker.metrics.tensor_metrics import as_float64

Tensors = Mapping[str, np.ndarray]

# Two scores this near each other, in parts of the scores' spread, are a tie that rounding decides.
_TIE = 1e-3


def flip_findings(
    contract: Contract,
    cases: Sequence[CaseMetrics],
    expected: Callable[[str], Tensors],
    found: Callable[[str], Tensors | None],
) -> list[Finding]:
    """Return N505 for each output of labels that differs, at the first case that shows it, if
    another output holds the scores that the labels are the argmax of. `expected` returns the
    original's outputs of a case, `found` the built model's.
    """
    findings = []
    for spec in contract.outputs:
        if not is_whole(spec.dtype):
            continue
        off = next((case.case for case in cases if _differs(case, spec.name)), None)
        candidate = found(off) if off is not None else None
        if off is not None and candidate is not None:
            finding = _explained(off, spec, contract, expected(off), candidate)
            findings += [finding] if finding is not None else []
    return findings


def _differs(case: CaseMetrics, output: str) -> bool:
    return any(
        each.output == output and each.mismatch is None and each.agreement < 1
        for each in case.outputs
    )


def _explained(
    case: str, spec: TensorSpec, contract: Contract, expected: Tensors, candidate: Tensors
) -> Finding | None:
    labels, chosen = np.asarray(expected[spec.name]), np.asarray(candidate[spec.name])
    for other in contract.outputs:
        if is_whole(other.dtype) or other.name not in candidate:
            continue
        scores, found = (as_float64(np.asarray(each[other.name])) for each in (expected, candidate))
        axis = chosen_along(scores, labels)
        if axis is not None and chosen_along(found, chosen) == axis:
            return _finding(case, (spec.name, other.name), labels, chosen, scores, found, axis)
    return None


def _finding(
    case: str,
    names: tuple[str, str],
    labels: np.ndarray,
    chosen: np.ndarray,
    scores: np.ndarray,
    found: np.ndarray,
    axis: int,
) -> Finding:
    rows = np.moveaxis(scores, axis, -1).reshape(-1, scores.shape[axis])
    built = np.moveaxis(found, axis, -1).reshape(rows.shape)
    flipped = np.flatnonzero(labels.ravel() != chosen.ravel())
    margins = rows[flipped].max(axis=1) - rows[flipped, chosen.ravel()[flipped]]
    widest = int(flipped[int(margins.argmax())])
    margin, spread = float(margins.max()), float(rows.std()) or 1.0
    error = float(np.abs(built[flipped] - rows[flipped]).max())
    index = [int(place) for place in np.unravel_index(widest, labels.shape)]
    tie = margin <= _TIE * spread
    why = (
        "a near tie, which rounding decides"
        if tie
        else "not a near tie: the scores themselves are off"
    )
    return Finding(
        "N505",
        f"{flipped.size} of {labels.size} labels in {names[0]!r} differ in case {case!r}. The"
        f" widest margin is at {index}: {int(chosen.ravel()[widest])}, original"
        f" {int(labels.ravel()[widest])}, whose scores in {names[1]!r} are {margin:.2g} apart"
        f" (scores spread by {spread:.2g}, and are off by up to {error:.2g} there): {why}",
        Place(tensor=names[0], case=case),
        {"margin": margin, "spread": spread, "error": error, "tie": tie, "flipped": flipped.size},
        Remedy(
            "If near ties do not matter to you, allow a share of them: tolerance: {agreement:"
            " 0.999} for this output."
            if tie
            else f"Find out why {names[1]!r} is off; the labels follow."
        ),
    )

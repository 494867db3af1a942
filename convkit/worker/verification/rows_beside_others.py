"""Rows that a larger row of their batch drowns: what is quantized has one scale for all rows, and a
limit on the whole output is met by the large rows alone.

The proof is the same row by itself, which is then right.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseMetrics
from convkit.worker.cases.invariance_cases import row_dimension, take_rows
from convkit.worker.metrics.magnitudes import rms
from convkit.worker.verification.built_model import BuiltModel

Outputs = Mapping[str, np.ndarray]

# The cases with values that a user has, and with the usual ones.
_CASES = ("example", "typical")
# Below this, a model is as good as exact, and no row is lost.
_LEAST_ERROR = 1e-3
# A row suffers whose error is more than this part of its size, and less by itself, where it is that
# much smaller. It is lost if it is further off than it is large.
_SUFFERS, _FOUND, _LOST = 0.1, 0.1, 1.0


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of an output: its number, how large it is, and how far it is off."""

    output: TensorSpec
    number: int
    size: float
    error: float

    @property
    def share(self) -> float:
        return self.error / self.size


def drowned_rows(
    contract: Contract, rows: str | None, cases: Sequence[CaseMetrics], built: BuiltModel
) -> list[Finding]:
    """Return N302 for the row that suffers most in its batch and is right by itself: an error if it
    is lost, and otherwise a warning. `rows` is the axis of the batch.
    """
    for case in cases:
        inexact = any(output.nrmse > _LEAST_ERROR for output in case.outputs)
        if rows is None or case.case not in _CASES or case.error is not None or not inexact:
            continue
        found, right = built.outputs(case.case), built.expected(case.case)
        lost = None if found is None else _worst(contract, rows, right, found)
        if lost is None:
            continue
        alone = built.run_alone(case.case, rows, lost.number)
        expected = take_rows(contract.outputs, rows, right, [lost.number])[lost.output.name]
        if alone is None or alone[lost.output.name].shape != expected.shape:
            continue
        error = rms(alone[lost.output.name].astype(np.float64) - expected)
        if error <= min(_FOUND * lost.error, _SUFFERS * lost.size):
            return [_finding(lost, case.case, rows, error)]
    return []


def _worst(contract: Contract, rows: str, expected: Outputs, found: Outputs) -> _Row | None:
    """Return the row that suffers most; None if none does."""
    known: list[_Row] = []
    for output in contract.outputs:
        place = row_dimension(output, rows)
        right, given = expected[output.name], found.get(output.name)
        if place is None or right.dtype.kind != "f" or given is None or given.shape != right.shape:
            continue
        for number in range(right.shape[place]):
            one, other = (
                np.take(each, number, place).astype(np.float64) for each in (right, given)
            )
            known.append(_Row(output, number, rms(one), rms(other - one)))
    lost = [row for row in known if row.size > 0 and row.share > _SUFFERS]
    return max(lost, key=lambda row: row.share, default=None)


def _finding(row: _Row, case: str, rows: str, alone: float) -> Finding:
    name = row.output.name
    return Finding(
        "N302",
        f"row {row.number} of {name!r} in case {case!r} is off by {row.share:.2%} of its size in"
        f" its batch, and by {alone / row.size:.2%} when it is run alone: what is quantized has"
        " one scale for all rows, which the largest of them sets",
        Place(tensor=name, case=case),
        {"kind": "rows", "row": row.number, "proven": True, "owner": "precision"},
        Remedy(
            f"Run rows one at a time (give {rows} a max of 1 under axes): run alone, this row was"
            " right. Or divide each row by its size before the first layer, or keep the layers that"
            " read the input in float32, which convkit has not tried."
        ),
        severity="error" if row.share > _LOST else "warning",
    )

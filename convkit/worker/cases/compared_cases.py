"""The ladder's cases, as precision stages examine them."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import (
    CaseRecord,
    LowType,
    is_at_decisions,
    is_of_plain_rows,
    is_of_sweep,
)
from convkit.protocol.metrics.near_zero_outputs import largest_magnitudes
from convkit.protocol.metrics.unusually_small import usual_magnitudes
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.cases.equal_scores import Open, ScoredPlaces, read_open, read_scores
from convkit.worker.cases.invariance_cases import row_axis, take_rows
from convkit.worker.cases.plain_rows import is_beyond_low_types
from convkit.worker.cases.values.padding_masks import output_padding
from convkit.worker.metrics.magnitudes import largest_value, rms
from convkit.worker.metrics.score_steps import Steps, find_steps
from convkit.worker.metrics.tensor_metrics import as_float64

# What a search for precision does not try.
_LEFT_OUT = (is_at_decisions, is_of_plain_rows)


@dataclasses.dataclass(frozen=True)
class JudgedCase:
    """One case: inputs and the original's outputs by name, and the positions where outputs are
    meaningless (see `compare`). `contract` says which outputs are sets of rows, `scored` has the
    scores of outputs that are places of equal ones, `are_open` what else is right where elements
    depend on the order of equal ones, `steps` which labels are steps of a score. `usual` is how
    large outputs are in most cases, `largest` how large their largest values are in any.
    `only_finite`: no limit applies but that the outputs are finite where the original's are.
    `derived` are the outputs whose limits follow from a type. `passes_nan`: NaN at the same places
    is right (see `CaseRecord`).
    """

    feeds: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    padding: Mapping[str, np.ndarray]
    contract: Contract = dataclasses.field(default_factory=lambda: Contract((), (), ()))
    scored: Mapping[str, ScoredPlaces] = dataclasses.field(default_factory=dict)
    only_finite: bool = False
    are_open: Open | None = None
    steps: Mapping[str, Steps] | None = None
    usual: Mapping[str, float] = dataclasses.field(default_factory=dict)
    largest: Mapping[str, float] = dataclasses.field(default_factory=dict)
    derived: Collection[str] = ()
    passes_nan: bool = False


def ladder_cases(
    reference: Path,
    contract: Contract,
    low: LowType | None,
    *,
    copies: bool = True,
    sweeps: bool = False,
) -> dict[str, JudgedCase]:
    """Return the ladder's cases as stored by the reference, memory-mapped; but not `decisions`,
    whose values a low precision does not tell apart, `plain-rows`, whose rounding a normalization
    makes larger than its results, and, without `sweeps`, `sweep`, which shows little that `sizes`
    does not.

    `copies`: with all rows, also those that are copies of others. They show nothing that is not
    known of the others, so a search need not try them; a verification does. `low` is the type that
    the cases are to judge.
    """
    found = {
        case.name: _judged(reference, contract, case, low, copies=copies)
        for case in read_cases(reference).cases
        if case.kind == "ladder"
        and not any(left_out(case.name) for left_out in _LEFT_OUT)
        and (sweeps or not is_of_sweep(case.name))
    }
    steps = find_steps(each.expected for each in found.values())
    usual = usual_magnitudes(_measured(found, rms))
    largest = largest_magnitudes(_measured(found, largest_value))
    return {
        name: dataclasses.replace(each, steps=steps, usual=usual, largest=largest)
        for name, each in found.items()
    }


def usual_sizes(reference: Path, contract: Contract) -> dict[str, float]:
    """Return how large the original's outputs are in most cases, by their root mean squares."""
    found = ladder_cases(reference, contract, None, copies=False)
    return dict(next((each.usual for each in found.values()), {}))


def _measured(
    cases: Mapping[str, JudgedCase], measure: Callable[[np.ndarray], float]
) -> Iterator[tuple[str, str, float]]:
    """Yield cases, their outputs, and what is measured of the original's values."""
    for name, case in cases.items():
        for output, values in case.expected.items():
            yield name, output, measure(as_float64(values))


def plain_cases(reference: Path, contract: Contract, low: LowType | None) -> dict[str, JudgedCase]:
    """Return the ladder's cases of plain rows that a low precision is judged by. Its rounding may
    change their results by any factor, but an epsilon that it rounds to zero makes them NaN.
    """
    return {
        case.name: dataclasses.replace(
            _judged(reference, contract, case, low, copies=True), only_finite=True
        )
        for case in read_cases(reference).cases
        if is_of_plain_rows(case.name) and not is_beyond_low_types(case.name)
    }


def single_case(reference: Path, contract: Contract, name: str, low: LowType | None) -> JudgedCase:
    """Return one case by its name, memory-mapped, without rows that are copies of others."""
    case = next(case for case in read_cases(reference).cases if case.name == name)
    return _judged(reference, contract, case, low, copies=False)


def _judged(
    reference: Path, contract: Contract, case: CaseRecord, low: LowType | None, *, copies: bool
) -> JudgedCase:
    feeds = read_tensors(reference, case.name, "inputs", contract.inputs)
    expected = read_tensors(reference, case.name, "outputs", contract.outputs)
    scored = read_scores(reference, case.name, contract.outputs)
    are_open = read_open(reference, case.name, contract.outputs, low)
    rows = row_axis(contract)
    if case.row_order and not copies and not isinstance(rows, str):
        different = range(max(case.row_order) + 1)
        feeds = take_rows(contract.inputs, rows.name, feeds, different)
        expected = take_rows(contract.outputs, rows.name, expected, different)
        if are_open is not None:
            are_open = {
                spec.name: tuple(
                    take_rows([spec], rows.name, {spec.name: each}, different)[spec.name]
                    for each in are_open[spec.name]
                )
                for spec in contract.outputs
                if spec.name in are_open
            }
        places = {name: each.rows for name, each in scored.items()}
        parted = [spec for spec in contract.outputs if spec.name in scored]
        for name, kept in take_rows(parted, rows.name, places, different).items():
            scored[name] = dataclasses.replace(scored[name], rows=kept)
    padding = {spec.name: output_padding(feeds, contract, spec) for spec in contract.outputs}
    known = {name: positions for name, positions in padding.items() if positions is not None}
    return JudgedCase(
        feeds, expected, known, contract, scored, are_open=are_open, passes_nan=case.passes_nan
    )

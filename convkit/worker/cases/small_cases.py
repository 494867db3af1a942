"""Small but numerous cases: every small batch, unusual masks, and both sides of the model's
comparisons with sizes and values of its inputs.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Sample
from convkit.protocol.numpy_dtypes import is_float, numpy_dtype
from convkit.worker.cases.axis_sizes import largest_sizes, probe_sizes
from convkit.worker.cases.case import (
    Case,
    CaseInputs,
    Feeds,
    affordable,
    case_cost,
    sizes_name,
    sizes_text,
)
from convkit.worker.cases.decision_sizes import Decisions, Threshold, turns
from convkit.worker.cases.decision_values import in_turn, turning_values
from convkit.worker.cases.invariance_cases import row_axis
from convkit.worker.cases.plain_rows import PlainRow, all_rows
from convkit.worker.cases.sizes_between import corner_sizes, sizes_between
from convkit.worker.cases.values.held_numbers import HowMany
from convkit.worker.cases.values.sampled_values import Draw, Padding, integer_range, sample_for

_NO_MASK = "no input has sample: padding_mask"

# Batches of up to so many rows are all run.
_SMALL_BATCH = 4
# Sizes around decisions, and then others between those of other cases: the cheapest are run, up to
# this number, while their total cost is at most a fraction of the largest case; both sides of one
# decision in any case.
_MOST_SIZES = 6
_FEWEST_SIZES = 2
_MOST_SHARE = 0.5
# The part of it for one axis at its largest: gaps are where most other faults are.
_CORNERS_SHARE = 1 / 3
# Relative (or, near 0, absolute) distance of a fraction from a threshold.
_BESIDE = 1e-3
# Cases of values at decisions, and types whose numbers have known neighbors.
_FEW_CASES, _MOST_CASES = 4, 8
_EXACT = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
# Standard deviations that a normal input's values may be from the mean, as in the case `extreme`.
_REACH = 8.0


def mask_patterns(made_from: CaseInputs) -> list[Case] | str:
    """Return a batch whose rows have padding on the left, holes, and more; or why there is none."""
    sizes = probe_sizes(made_from.contract)
    rows = row_axis(made_from.contract)
    if not isinstance(rows, str):
        sizes[rows.name] = max(rows.min, min(rows.max, _SMALL_BATCH))
    extent = made_from.mask_rows(sizes)
    if extent is None:
        return _NO_MASK
    if extent[1] < 2:
        return f"a mask of {extent[1]} position leaves no room for padding"
    draw = Draw("mask-patterns", "patterns")
    return [made_from.extra_case("padding on the left, holes", sizes, draw, may_be_nan=True)]


def small_batches(made_from: CaseInputs, before: Sequence[Case]) -> list[Case] | str:
    """Return one small case for each batch of up to four rows that no other case has."""
    rows = row_axis(made_from.contract)
    if isinstance(rows, str):
        return rows
    seen = {case.sizes[rows.name] for case in before}
    cases = []
    for size in range(rows.min, min(rows.max, _SMALL_BATCH) + 1):
        if size not in seen:
            sizes = probe_sizes(made_from.contract) | {rows.name: size}
            draw = Draw(f"batch:{size}", "ragged")
            cases.append(made_from.extra_case(f"{size} rows of different lengths", sizes, draw))
    return cases or f"other cases cover every {rows.name!r} up to {_SMALL_BATCH}"


def decided_sizes(
    made_from: CaseInputs, before: Sequence[Case], decisions: Decisions
) -> list[Case] | str:
    """Return cases on either side of each comparison of sizes, without those that others cover, and
    of sizes between those of other cases.
    """
    contract = made_from.contract
    most = _MOST_SHARE * case_cost(contract, largest_sizes(contract))
    wanted: dict[tuple[tuple[str, int], ...], tuple[dict[str, int], str]] = {}
    for decision in decisions.sizes:
        for turn in turns(decision, contract, probe_sizes(contract)):
            for side in (turn.below, turn.above):
                if not any(case.sizes == side for case in before):
                    text = f"beside the comparison at {turn.place}"
                    wanted.setdefault(tuple(side.items()), (side, text))
    for side in _sizes_of_rows(contract, decisions.rows):
        if not any(case.sizes == side for case in before):
            wanted.setdefault(tuple(side.items()), (side, "at the row of a table that differs"))
    cheapest = sorted(wanted.values(), key=lambda each: case_cost(contract, each[0]))
    cases: list[Case] = []
    spent = 0
    for sizes, text in cheapest[:_MOST_SIZES]:
        spent += case_cost(contract, sizes)
        if spent > most and len(cases) >= _FEWEST_SIZES:
            break
        draw = Draw(f"sizes:{sizes_name(sizes)}")
        cases.append(made_from.extra_case(text, sizes, draw))
    known = [each.sizes for each in (*before, *cases)]
    spare = [*affordable(contract, corner_sizes(contract, known), most * _CORNERS_SHARE)]
    what = dict.fromkeys(map(sizes_name, spare), "one axis at its largest only")
    room = max(0, _MOST_SIZES - len(cases))
    spare += sizes_between(contract, [*known, *spare], room)
    for sizes in affordable(contract, spare, most - spent):
        name = sizes_name(sizes)
        why = what.get(name, "between the sizes of other cases")
        cases.append(made_from.extra_case(why, sizes, Draw(f"sizes:{name}")))
    return cases or "other cases cover the axes' sizes"


def _sizes_of_rows(contract: Contract, rows: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield the sizes at which a table that is read by a size, or by the last place along an axis,
    gives its first row that differs.
    """
    for row in rows[:1]:
        for axis in contract.axes:
            for size in (row, row + 1):
                if axis.min <= size <= axis.max:
                    yield probe_sizes(contract) | {axis.name: size}


def decided_values(made_from: CaseInputs, decisions: Decisions) -> list[Case] | str:
    """Return a case that has values on either side of each value that inputs are compared with, and
    one for the other side of each branch on values.
    """
    beside = _beside_thresholds(made_from, decisions)
    meant = [*_with_meaning(made_from), *_of_rows(made_from, decisions)]
    if meant:
        beside = [*([] if isinstance(beside, str) else beside), *meant]
    branches = [
        Case(
            f"values:{number}",
            f"the other side of the branch at {branch.place} ({sizes_text(branch.sizes)})",
            branch.sizes,
            functools.partial(dict, branch.inputs),
            may_be_refused=True,
            may_be_nan=True,
        )
        for number, branch in enumerate(decisions.branches, 1)
    ]
    if isinstance(beside, str):
        return branches or beside
    return [*beside, *branches]


def at_decisions(made_from: CaseInputs, decisions: Decisions) -> list[Case] | str:
    """Return cases whose inputs have values at which the model decides, and their neighbors in the
    input's type; or why there is none. Small sizes have room for all of them in several cases.
    """
    contract = made_from.contract
    found: dict[str, list[list[tuple[float, ...]]]] = {}
    places: list[str] = []
    specs = {spec.name: spec for spec in contract.inputs}
    for decision in decisions.values:
        spec = specs[decision.tensor]
        low, high = value_range(made_from, spec, sample_for(spec, made_from.samples))
        if not math.isfinite(low) or spec.dtype not in _EXACT:
            continue
        if turns := turning_values(decision, low, high, numpy_dtype(spec.dtype)):
            found.setdefault(spec.name, []).append(turns)
            places.append(decision.place)
    if not found:
        return "the model rounds, compares or looks up no input within its sample's range"
    values = {name: [*in_turn(groups)] for name, groups in found.items()}

    def room(name: str, sizes: Mapping[str, int]) -> int:
        return max(1, math.prod(specs[name].concrete_shape(sizes)))

    def count(sizes: Mapping[str, int]) -> int:
        return max(-(-len(each) // room(name, sizes)) for name, each in values.items())

    tried = (probe_sizes(contract), contract.typical_sizes(), largest_sizes(contract))
    sizes = next((each for each in tried if count(each) <= _FEW_CASES), min(tried, key=count))
    what = f"at the decisions at {', '.join(dict.fromkeys(places))}"
    cases = []
    for number in range(min(count(sizes), _MOST_CASES)):
        part = {
            name: each[number * room(name, sizes) :][: room(name, sizes)] or each
            for name, each in values.items()
        }
        draw = Draw("decisions" if number == 0 else f"decisions:{number + 1}", values=part)
        cases.append(made_from.extra_case(what, sizes, draw, may_be_nan=True))
    return cases


def legal_inputs(made_from: CaseInputs, sizes: dict[str, int]) -> Iterator[Feeds]:
    """Yield inputs that differ much, all of them legal: some samples, then a sample moved within
    each input's range: mirrored, drawn to the middle, all at the lowest value, all at the highest.
    """
    paddings: tuple[Padding, ...] = ("full", "right", "ragged")
    for padding in paddings:
        yield made_from.draw(sizes, Draw(f"branch:{padding}", padding))
    yield made_from.draw(sizes, Draw("branch:extreme", extreme=True))
    base = made_from.draw(sizes, Draw("branch"))
    for middle, share in ((0.5, -1.0), (0.5, 0.1), (0.0, 0.0), (1.0, 0.0)):
        moved = {}
        for spec in made_from.contract.inputs:
            values = base[spec.name]
            low, high = value_range(made_from, spec, sample_for(spec, made_from.samples))
            if math.isfinite(low):  # masks and positions stay as they are
                center = low + middle * (high - low)
                values = (center + share * (values - center)).astype(values.dtype)
            moved[spec.name] = values
        yield moved
    kinds: tuple[PlainRow, ...] = ("zeros", "constant", "huge")
    for kind in kinds:
        yield all_rows(made_from, sizes, kind)
    # Far more and far less than usual.
    for share in (4.0, 1e-9):
        yield {
            spec.name: _scaled(made_from, spec, base[spec.name], share)
            for spec in made_from.contract.inputs
        }


def _scaled(made_from: CaseInputs, spec: TensorSpec, values: np.ndarray, by: float) -> np.ndarray:
    """Return fractions times a number, as far as that is legal; other values as they are."""
    low, high = value_range(made_from, spec, sample_for(spec, made_from.samples))
    if not is_float(spec.dtype) or not math.isfinite(low):
        return values
    return np.clip(values.astype(np.float64) * by, low, high).astype(values.dtype)


def _beside_thresholds(made_from: CaseInputs, decisions: Decisions) -> list[Case] | str:
    contract = made_from.contract
    values: dict[str, list[float]] = {}
    places: list[str] = []
    specs = {spec.name: spec for spec in contract.inputs}
    for threshold in decisions.thresholds:
        if threshold.tensor not in specs or not math.isfinite(threshold.value):
            continue
        legal = _legal_beside(made_from, specs[threshold.tensor], threshold)
        if legal:
            values.setdefault(threshold.tensor, []).extend(legal)
            places.append(threshold.place)
    if not values:
        return "the model's code compares no input with a number within its sample's range"
    sizes = probe_sizes(contract)
    draw = Draw("values", values={name: sorted(set(each)) for name, each in values.items()})
    what = f"beside the comparisons at {', '.join(dict.fromkeys(places))}"
    return [made_from.extra_case(what, sizes, draw, may_be_nan=True)]


def _with_meaning(made_from: CaseInputs) -> Iterator[Case]:
    """Yield cases in which no element, one, and every one has a number with a meaning."""
    held = {
        spec.name: sample.held
        for spec in made_from.contract.inputs
        if (sample := sample_for(spec, made_from.samples)).held
    }
    if not any(each.count is None for group in held.values() for each in group):
        return
    sizes = probe_sizes(made_from.contract)
    numbers = ", ".join(str(each.value) for group in held.values() for each in group)
    how_many: tuple[HowMany, ...] = ("none", "one", "all")
    for amount in how_many:
        draw = Draw(f"values:{amount}", held=amount)
        yield made_from.extra_case(f"{amount} of {numbers}", sizes, draw, may_be_nan=True)


def _of_rows(made_from: CaseInputs, decisions: Decisions) -> Iterator[Case]:
    """Yield a case that reads the rows of a table that a file has otherwise than the original."""
    values: dict[str, list[float]] = {}
    for spec in made_from.contract.inputs:
        sample = sample_for(spec, made_from.samples)
        if sample.kind in ("token_ids", "integers"):
            low, high = value_range(made_from, spec, sample)
            legal = [float(row) for row in decisions.rows if low <= row <= high]
            values |= {spec.name: legal} if legal else {}
    if values:
        draw = Draw("values:rows", values=values)
        what = "rows of a table that differ from the original's"
        yield made_from.extra_case(what, probe_sizes(made_from.contract), draw, may_be_nan=True)


def _legal_beside(made_from: CaseInputs, spec: TensorSpec, threshold: Threshold) -> list[float]:
    """Return a threshold's neighbors, and itself, as far as the sample can draw them."""
    sample = sample_for(spec, made_from.samples)
    low, high = value_range(made_from, spec, sample)
    value = threshold.value
    if is_float(spec.dtype):
        step = _BESIDE * max(1.0, abs(value))
        beside = [value - step, *([value] if threshold.exact else []), value + step]
    else:
        beside = [float(math.floor(value)) - 1, float(math.floor(value)), math.floor(value) + 1.0]
    # Both sides, or there is nothing to try.
    inside = [each for each in beside if low <= each <= high]
    return inside if len(inside) > 1 else []


def value_range(made_from: CaseInputs, spec: TensorSpec, sample: Sample) -> tuple[float, float]:
    """Return the least and the largest legal value; not finite where they do not say what else is
    legal, as for masks and files.
    """
    match sample.kind:
        case "token_ids" | "integers":
            low, high = integer_range(spec, sample, made_from.facts)
            return float(low), float(high - 1)
        case "normal":
            mean, deviation = sample.numbers
            return mean - _REACH * deviation, mean + _REACH * deviation
        case "uniform" | "image" | "audio":
            return sample.numbers[0], sample.numbers[1]
        case _:  # masks, positions, constants and files have fixed values
            return math.inf, -math.inf

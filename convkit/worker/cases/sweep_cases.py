"""Many further cases of a model that computes little: every number of rows and many sizes at once,
and every whole number of an input's range. A fault at a few lengths, one batch or one id of a
thousand shows in no other case.
"""

import math
from collections.abc import Iterator, Sequence

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import EVERY_NUMBER
from convkit.worker.cases.axis_sizes import largest_sizes, probe_sizes
from convkit.worker.cases.case import Case, CaseInputs, case_cost, sizes_name
from convkit.worker.cases.decision_sizes import Sizes
from convkit.worker.cases.sizes_between import sizes_of_all_axes
from convkit.worker.cases.values.sampled_values import Draw, Padding, integer_range, sample_for

NAME = "sweep"

# A case takes about 20 ms: its files, a call of a runtime with new shapes, its metrics.
_MOST_SIZES = 14
# Cases in which every whole number occurs.
_MOST_OF_NUMBERS = 6
# All of them together: elements of inputs and outputs, and these times the model's weights, which
# is at least what most models multiply; a processor does so many in about a second.
_MOST_ELEMENTS = 2**19
_MOST_PRODUCTS = 4e9


def sweep(made_from: CaseInputs, before: Sequence[Case]) -> list[Case] | str:
    """Return the cases, or why there is none."""
    most = _most_elements(made_from)
    if not most:
        return "how much the model computes is unknown"
    cases = [*_numbers(made_from, most)]
    spent = sum(case_cost(made_from.contract, each.sizes) for each in cases)
    cases += _sizes(made_from, [each.sizes for each in before], most - spent)
    return cases or "other cases cover the sizes, or the model computes too much for more"


def _most_elements(made_from: CaseInputs) -> float:
    weights = made_from.facts.weights
    return 0 if weights is None else min(_MOST_ELEMENTS, _MOST_PRODUCTS / max(weights, 1))


def _sizes(made_from: CaseInputs, known: Sequence[Sizes], most: float) -> Iterator[Case]:
    """Yield cases of as many sizes as cost no more than that; where there are masks, every second
    one with padding, which then begins at places where it does in no other case.
    """
    contract = made_from.contract
    for number, sizes in enumerate(_affordable_sizes(contract, known, most)):
        name = f"{NAME}:{sizes_name(sizes)}"
        rows, _ = made_from.padded_rows(sizes) or (0, 0)
        padding: Padding = "full" if not rows or number % 2 else "ragged" if rows > 1 else "right"
        what = "sizes that no other case has" + (", with padding" if padding != "full" else "")
        yield made_from.extra_case(what, sizes, Draw(name, padding))


def _affordable_sizes(
    contract: Contract, known: Sequence[Sizes], most: float
) -> list[dict[str, int]]:
    for count in range(_MOST_SIZES, 0, -1):
        wanted = sizes_of_all_axes(contract, known, count)
        if sum(case_cost(contract, sizes) for sizes in wanted) <= most:
            return wanted
    return []


def _numbers(made_from: CaseInputs, most: float) -> Iterator[Case]:
    """Yield cases in which together each number of every range occurs, as far as the largest case
    has no room for them and a few cases do.
    """
    contract = made_from.contract
    numbers = {
        spec.name: legal
        for spec in contract.inputs
        if (legal := _legal(made_from, spec)) and len(legal) > _room(spec, largest_sizes(contract))
    }
    specs = {spec.name: spec for spec in contract.inputs}

    def count(sizes: Sizes) -> int:
        rooms = {name: _room(specs[name], sizes) for name in numbers}
        return max(-(-len(legal) // max(rooms[name], 1)) for name, legal in numbers.items())

    if not numbers:
        return
    tried = (probe_sizes(contract), contract.typical_sizes(), largest_sizes(contract))
    sizes = next((each for each in tried if count(each) <= _MOST_OF_NUMBERS), None)
    if sizes is None or count(sizes) * case_cost(contract, sizes) > most:
        return
    names = ", ".join(map(repr, numbers))
    for number in range(count(sizes)):
        parts = {
            name: _part(legal, number, _room(specs[name], sizes)) for name, legal in numbers.items()
        }
        draw = Draw(f"{EVERY_NUMBER}:{number + 1}", values=parts)
        what = f"every number of {names}, part {number + 1} of {count(sizes)}"
        yield made_from.extra_case(what, sizes, draw, may_be_nan=True)


def _part(legal: range, number: int, room: int) -> range:
    """Return so many of a range; the last part, or one after it, has the last ones."""
    start = max(0, min(number * room, len(legal) - room))
    return legal[start : start + room]


def _legal(made_from: CaseInputs, spec: TensorSpec) -> range:
    """Return the whole numbers of an input; nothing if it has none, or they have a meaning."""
    sample = sample_for(spec, made_from.samples)
    if sample.kind not in ("token_ids", "integers") or sample.held:
        return range(0)
    return range(*integer_range(spec, sample, made_from.facts))


def _room(spec: TensorSpec, sizes: Sizes) -> int:
    return math.prod(spec.concrete_shape(sizes))

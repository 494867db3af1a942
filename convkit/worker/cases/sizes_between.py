"""Sizes in the widest gaps between those that other cases have: a fault may exist at some lengths
only, neither the smallest nor the largest. And those at which one axis is large and others small.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from convkit.protocol.contract import Axis, Contract
from convkit.worker.cases.axis_sizes import nearest_prime, smallest_sizes
from convkit.worker.cases.case import case_cost
from convkit.worker.cases.decision_sizes import Sizes
from convkit.worker.cases.invariance_cases import row_axis

# Every so many sizes, the gap that is widest by its ratio comes first: between 2 and 20 there are
# more kinds of models than between 480 and 498.
_BY_RATIO = 3
# From a multiple of a power of two, in turn: one more leaves a part with a single element.
_BESIDE = (1, -1, 0)


def sizes_between(
    contract: Contract, known: Sequence[Sizes], most: int
) -> Iterator[dict[str, int]]:
    """Yield up to `most` sizes in the gaps between known ones: those of all axes but the rows' at
    once, with as few rows as there may be, and then a number of rows with all else smallest.
    """
    rows = row_axis(contract) if len(contract.axes) > 1 else "the only axis"
    others = [axis for axis in contract.axes if isinstance(rows, str) or axis.name != rows.name]
    smallest = smallest_sizes(contract)
    # Each axis in another order, so that two are not both small or both large in every case.
    gaps = {
        axis.name: _turned([*itertools.islice(_in_gaps(axis, known), most)], place)
        for place, axis in enumerate(others)
    }
    count = max(map(len, gaps.values()), default=0)
    found = [
        {**smallest, **{name: sizes[turn % len(sizes)] for name, sizes in gaps.items() if sizes}}
        for turn in range(count)
    ]
    if not isinstance(rows, str) and (size := next(_in_gaps(rows, known), None)) is not None:
        found.insert(min(2, len(found)), {**smallest, rows.name: size})
    yield from found[:most]


def sizes_of_all_axes(
    contract: Contract, known: Sequence[Sizes], most: int
) -> list[dict[str, int]]:
    """Return up to `most` sizes of which each is new on some axis: the fewest rows that no case has
    first, one by one, and the other axes' so that they leave no wider gap than so many must.
    """
    rows = row_axis(contract)
    orders = []
    for place, axis in enumerate(contract.axes):
        if not isinstance(rows, str) and axis.name == rows.name:
            taken = {sizes[axis.name] for sizes in known}
            free = (size for size in range(axis.min, axis.max + 1) if size not in taken)
            orders.append([*itertools.islice(free, most)])
        else:
            orders.append(_turned(_evenly(axis, known, most), place))
    count = max(map(len, orders), default=0)
    smallest = smallest_sizes(contract)
    return [
        {
            axis.name: order[turn % len(order)] if order else smallest[axis.name]
            for axis, order in zip(contract.axes, orders, strict=True)
        }
        for turn in range(count)
    ]


def corner_sizes(contract: Contract, known: Sequence[Sizes]) -> list[dict[str, int]]:
    """Return the sizes at which one axis is at its largest and all others at their smallest, those
    that no case has, the cheapest first: a fault may need two axes of different sizes.
    """
    smallest = smallest_sizes(contract)
    varying = [axis for axis in contract.axes if axis.max > axis.min]
    corners = [{**smallest, axis.name: axis.max} for axis in varying if len(varying) > 1]
    left = [sizes for sizes in corners if sizes not in known]
    return sorted(left, key=lambda sizes: case_cost(contract, sizes))


def _turned(sizes: list[int], by: int) -> list[int]:
    return sizes[by:] + sizes[:by]


def _evenly(axis: Axis, known: Sequence[Sizes], most: int) -> list[int]:
    """Return up to so many sizes of an axis that divide the gaps between known ones about evenly:
    beside and at multiples of powers of two, as large as there is room for, since windows, chunks
    and tiles are that long.
    """
    taken = sorted({axis.min, axis.max, *(sizes[axis.name] for sizes in known)})
    parts = {ends: 1 for ends in itertools.pairwise(taken) if ends[1] - ends[0] > 1}
    for _ in range(most if parts else 0):
        low, high = max(parts, key=lambda ends: (ends[1] - ends[0]) / parts[ends])
        if high - low > parts[low, high]:
            parts[low, high] += 1
    found: list[int] = []
    for (low, high), count in parts.items():
        for part in range(1, count):
            size, room = low + round((high - low) * part / count), (high - low) // count // 2
            size = _roundest(max(low, size - room), min(high, size + room))
            size += _BESIDE[len(found) % len(_BESIDE)]
            found.append(min(max(size, low + 1), high - 1))
    return sorted(set(found))


def _roundest(low: int, high: int) -> int:
    """Return the number from one to the other that the largest power of two divides."""
    step = 1
    while (high // (2 * step)) * 2 * step >= low and 2 * step <= high:
        step *= 2
    return high // step * step


def _in_gaps(axis: Axis, known: Sequence[Sizes]) -> Iterator[int]:
    """Yield sizes of an axis, each in the widest gap that those before leave: primes, of which none
    is a multiple of what a graph was specialized to, and in turn one more than a round number.
    """
    taken = {axis.min, axis.max, *(sizes[axis.name] for sizes in known if axis.name in sizes)}
    for turn in itertools.count(1):
        gaps = [(low, high) for low, high in itertools.pairwise(sorted(taken)) if high - low > 1]
        if not gaps:
            return
        if turn % _BY_RATIO == 0:
            low, high = max(gaps, key=lambda gap: gap[1] / max(gap[0], 0.5))
            middle = round(math.sqrt(max(low, 1) * high))
        else:
            low, high = max(gaps, key=lambda gap: gap[1] - gap[0])
            middle = (low + high) // 2
        if turn % 2:
            size = nearest_prime(middle, low + 1, high - 1)
        else:
            room = (high - low) // 8
            size = min(_roundest(middle - room, middle + room) + 1, high - 1)
        taken.add(size)
        yield size

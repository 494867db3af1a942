"""Numbers with a meaning among drawn whole numbers: a token in whose place an image goes, the end
of a text, padding. They occur as often as their sample says.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Held
from convkit.worker.job_context import StageFailedError

# some: about a quarter of each row, as far as it has two elements.
HowMany = Literal["some", "none", "one", "all"]
_PART = 4


def hold(
    values: np.ndarray,
    spec: TensorSpec,
    ends: tuple[int, int],
    held: Sequence[Held],
    how_many: HowMany = "some",
) -> np.ndarray:
    """Return drawn numbers of which as many elements as wanted have each held number, and no
    others. `ends` are those of the range, the upper excluded.

    They are spread evenly over the rows. Numbers whose count is not stated take the room that there
    is; all of a row is the first one's, and the others have none. Raises StageFailedError if a
    stated count is more than the elements.
    """
    found = without(values, ends, held)
    rows = found.reshape(found.shape[0] if found.ndim > 1 else 1, -1) if found.size else found
    taken = 0
    for each in held:
        counts = _by_row(each, how_many, len(rows), found.size)
        room = (rows.shape[-1] if found.size else 0) - taken
        if not isinstance(each.count, int):
            counts = [min(count, room) for count in counts]
        if max(counts, default=0) > room:
            raise StageFailedError(
                f"input {spec.name!r}: {sum(counts)} elements are to be {each.value}, and there is"
                f" no room for them in the shape {list(values.shape)}"
            )
        for row, count in zip(rows, counts, strict=False):
            # Not the first, if there is room: a text begins with something.
            start = min(1, row.size - count - taken) + taken
            row[start : start + count] = each.value
        taken += max(counts, default=0)
    return found


def without(values: np.ndarray, ends: tuple[int, int], held: Sequence[Held]) -> np.ndarray:
    """Return numbers with others of their range in place of those with a meaning."""
    meant = {each.value for each in held}
    others = np.array([number for number in range(*_near(ends, meant)) if number not in meant])
    found = np.array(values)
    is_meant = np.isin(found, list(meant))
    found[is_meant] = others[np.arange(int(is_meant.sum())) % len(others)]
    return found


def kept(
    values: np.ndarray, before: np.ndarray, ends: tuple[int, int], held: Sequence[Held]
) -> np.ndarray:
    """Return numbers that have those with a meaning where they were before, and nowhere else."""
    meant = [each.value for each in held]
    return np.where(np.isin(before, meant), before, without(values, ends, held))


def _near(ends: tuple[int, int], meant: set[int]) -> tuple[int, int]:
    """Return a part of a range in which some numbers have no meaning."""
    low, high = ends
    return low, min(high, low + 64 + len(meant))


def _by_row(each: Held, how_many: HowMany, rows: int, size: int) -> list[int]:
    """Return how many elements of each row have a number."""
    length = size // rows if rows else 0
    if isinstance(each.count, int):
        return [each.count // rows + (row < each.count % rows) for row in range(rows)]
    match how_many:
        case "none":
            return [0] * rows
        case "one":
            return [int(row == 0) for row in range(rows)]
        case "all":
            return [length] * rows
        case "some":
            return [max(1, length // _PART) if length > 1 else 0] * rows

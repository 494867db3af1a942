"""What is wrong where a graph parts from its original: the change that ends the difference."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator

from convkit.localize import insertions, numbers, rewrites
from convkit.localize.activations import activations
from convkit.localize.edits import Rewrite
from convkit.localize.parting import FLOOR
from convkit.localize.region import Region

# The first that explain a difference are preferred: what the graph has and holds wrongly before
# what it has too much, and that before what it lacks.
CANDIDATES: dict[str, Callable[[Region], Iterator[Rewrite]]] = {
    "weights": rewrites.weights,
    "activations": activations,
    "extra": rewrites.extra_at_end,
    "attributes": rewrites.attributes,
    "wiring": rewrites.wiring,
    "operands": rewrites.operand_order,
    "operators": rewrites.operators,
    "whole numbers": numbers.whole_numbers,
    "fractions": numbers.fractions,
    "at end": insertions.at_end,
    "inside": insertions.inside,
}
# The share of the error that may remain.
_REMAINS = 0.01
# Nodes. A larger region is a part of the model, not a place.
_LARGEST = 60


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A rewrite, and the target's error before and after it, in parts of its rms."""

    rewrite: Rewrite
    before: float
    after: float


def explain(region: Region, seconds: float = 30.0) -> Explanation | None:
    """Return the first kind of change that makes the difference vanish, the best of its kind.

    Returns None where none does, or where it has not been found in time.
    """
    before = region.error(region.graph)
    if not before > 0 or len(region.nodes) > _LARGEST:
        return None
    enough = max(5 * FLOOR, _REMAINS * FLOOR) if math.isinf(before) else max(
        2 * FLOOR, min(5 * FLOOR, _REMAINS * before)
    )  # fmt: skip
    deadline = time.process_time() + seconds
    found: Explanation | None = None
    for candidates in CANDIDATES.values():
        best: Explanation | None = None
        for rewrite in candidates(region):
            if time.process_time() > deadline:
                return found or best
            after = region.error(rewrite.graph)
            if after <= enough and after < before / 2 and (best is None or after < best.after / 4):
                best = Explanation(rewrite, before, after)
                if after <= FLOOR / 4:
                    break
        if best is not None and (found is None or best.after < found.after / 4):
            found = best
        # What is off by more than the last bits may only be near to what is wrong.
        if found is not None and found.after <= FLOOR / 2:
            return found
    return found

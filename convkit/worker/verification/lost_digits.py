"""Where the original itself loses digits: large values that nearly cancel out. Its own float32
outputs are then as far from its outputs in float64 as from the graph's.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.cases.equal_scores import NEAR
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.float32_rounding import rounding_finding
from convkit.worker.verification.ties import Outputs, first_decision

# Two right results in float32 each differ from float64's, and each by luck less than another.
_TIMES = 4.0

InFloat64 = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def blamed_on_rounding(
    case: TorchCase,
    name: str,
    expected: Outputs,
    computed: Outputs,
    in_float64: InFloat64,
    undecided: Finding | None,
) -> Finding | None:
    """Return N509 if the original's own rounding explains a case that failed, and with what was
    tried in float64 as the remedy; `undecided` if float64 explains nothing.

    `expected` and `computed` are the outputs of the original and of the graph in float32,
    `in_float64` computes the graph's in float64. `undecided` is what moving the original's inputs
    has shown, if anything.
    """
    if not any(each.dtype.kind == "f" for each in expected.values()):
        return undecided
    rounded = rounding_finding(case, name, in_float64)
    if rounded is None:
        return undecided
    resolved, agreed = rounded.evidence["resolved"], rounded.evidence["float64"]
    assert isinstance(resolved, dict)
    assert isinstance(agreed, dict)
    if undecided is not None:
        output = undecided.place.tensor
        if output not in resolved:
            return undecided
        return dataclasses.replace(undecided, remedy=_in_float64(float(agreed[output])))
    off = {each: _largest(expected[each], computed[each]) for each in expected}
    if not all(map(math.isfinite, (*off.values(), *resolved.values(), *agreed.values()))):
        return None  # what is not a number has lost no digits
    if any(not distance <= _TIMES * float(resolved.get(each, 0)) for each, distance in off.items()):
        return None
    output = max(off, key=lambda each: off[each])
    if not off[output] > NEAR * _size(expected[output]):
        return None  # usual rounding: what failed is no difference of the graph's
    operation = first_decision(case, 0)
    begins = ""
    if operation is not None:
        where = module_at(operation.module, operation.source)
        begins = f". It begins at {operation.kind} ({where}), where values nearly cancel out"
    return Finding(
        "N509",
        f"the original itself loses these digits in case {name!r}: its {output!r} in float32 is up"
        f" to {float(resolved[output]):.2g} from itself in float64, and the graph is"
        f" {off[output]:.2g} from the original{begins}",
        Place(
            tensor=output,
            module=(operation.module or None) if operation is not None else None,
            source=operation.source if operation is not None else None,
            case=name,
        ),
        {
            "kind": "cancelled",
            "owner": "original",
            "proven": True,
            "operation": operation.name if operation is not None else None,
            "resolved": dict(resolved),
            "float64": dict(agreed),
        },
        _in_float64(float(agreed[output])),
    )


def _in_float64(agreed: float) -> Remedy:
    return Remedy(
        "Compute this line in float64 (.double() on what it reads, .float() on its result):"
        f" convkit tried original and graph in float64, and they agree to {agreed:.2g}. Or"
        " subtract what the values have in common, such as their mean, before this line, which"
        " convkit has not tried.",
        proven=True,
    )


def _size(values: np.ndarray) -> float:
    """Return the largest magnitude among numbers."""
    return float(np.abs(values[np.isfinite(values)].astype(np.float64)).max(initial=0.0))


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference; infinity for other shapes, and where one is not finite."""
    if one.shape != other.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        off = np.abs(one.astype(np.float64) - other.astype(np.float64))
    off = np.where(one == other, 0.0, np.where(np.isnan(off), np.inf, off))
    return float(off.max(initial=0.0))

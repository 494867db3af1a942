"""Finds the largest size of an axis that the original accepts, by trying, which distinguishes it
from other reasons for an error.
"""

from collections.abc import Callable, Mapping

import numpy as np

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.axis_sizes import smallest_sizes

Accepts = Callable[[dict[str, int]], bool]
Feeds = Mapping[str, np.ndarray]


def restricted_axes(contract: Contract, accepts: Accepts) -> list[Finding]:
    """Return C113 for each axis whose largest size the original rejects while the smallest passes.

    Runs the original a few times per axis, with all other axes at their minimum. Empty if it also
    rejects the smallest sizes, because sizes are then not the reason.
    """
    smallest = smallest_sizes(contract)
    if not accepts(smallest):
        return []
    findings = []
    for axis in contract.axes:
        limit = _largest_accepted(axis, smallest, accepts)
        if limit < axis.max:
            findings.append(_restricted(axis, limit))
    return findings


def with_values_of(feeds: Feeds, accepted: Feeds) -> dict[str, np.ndarray]:
    """Return feeds of the same shapes that repeat values which the original is known to accept.

    If it accepts them as well, its sizes are not why it refused others.
    """
    return {name: np.resize(accepted[name], values.shape) for name, values in feeds.items()}


def refused_values(
    feeds: Feeds, accepted: Feeds, runs: Callable[[dict[str, np.ndarray]], bool]
) -> str | None:
    """Return the input whose values alone the original refuses; None if it is not one input's."""
    other = with_values_of(feeds, accepted)
    for name in feeds:
        if runs({**feeds, name: other[name]}):
            return name
    return None


def _largest_accepted(axis: Axis, others: dict[str, int], accepts: Accepts) -> int:
    """Return the largest size that passes, by bisection: a model with enough positions for one size
    has enough for smaller ones.
    """
    if accepts(others | {axis.name: axis.max}):
        return axis.max
    taken, refused = axis.min, axis.max
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if accepts(others | {axis.name: middle}):
            taken = middle
        else:
            refused = middle
    return taken


def _restricted(axis: Axis, limit: int) -> Finding:
    change = {f"axes.{axis.name}.max": limit}
    if axis.typical > limit:
        change[f"axes.{axis.name}.typical"] = limit
    return Finding(
        "C113",
        f"the original model supports axis {axis.name!r} up to {limit}; the recipe declares"
        f" {axis.max}",
        Place(tensor=axis.name),
        {"axis": axis.name, "largest": limit, "declared": axis.max},
        Remedy(
            f"Set axes.{axis.name}.max: {limit}, or use a model that supports more.",
            dict(change),
            proven=True,
        ),
    )

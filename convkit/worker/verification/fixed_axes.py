"""Finds the axes that a built model runs at one size only, by changing one axis of a case that
runs.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, dimension_size, names_with_axis
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.findings.shared_remedies import symbolic_shapes
from convkit.protocol.messages import CaseMetrics
from convkit.worker.runtime_interface.sessions import RunFailedError

Feeds = Mapping[str, np.ndarray]
Sizes = Mapping[str, int]


def fixed_axes(
    contract: Contract,
    cases: Sequence[CaseMetrics],
    sizes: Mapping[str, Sizes],
    feeds: Callable[[str], Feeds],
    run: Callable[[Feeds], object],
) -> list[Finding]:
    """Return C106 for each axis of which the model refuses another size, where it runs with all
    other sizes the same. `sizes` are those of each case. Costs one run per axis, and nothing if all
    cases ran, or none.
    """
    failed = [case for case in cases if case.error is not None]
    ran = [case for case in cases if case.error is None]
    if not failed or not ran:
        return []
    base = sizes[ran[0].case]
    found = []
    for axis in (each.name for each in contract.axes):
        if len({sizes[case.case].get(axis) for case in ran}) != 1:
            continue  # it ran at several sizes
        other = next((case for case in failed if sizes[case.case].get(axis) != base[axis]), None)
        if other is None:
            continue
        changed = {**base, axis: sizes[other.case][axis]}
        try:
            run(_resized(contract, feeds(ran[0].case), changed))
        except RunFailedError:
            found.append(_fixed(contract, axis, base[axis], changed[axis], other.case))
    return found


def _resized(contract: Contract, feeds: Feeds, sizes: Sizes) -> dict[str, np.ndarray]:
    """Return feeds at these sizes: rows are cut off, or the first ones repeated."""
    resized = {}
    for spec in contract.inputs:
        if spec.name in feeds:
            values = feeds[spec.name]
            for place, dimension in enumerate(spec.shape):
                wanted = dimension_size(dimension, sizes)
                values = np.take(values, range(wanted), axis=place, mode="wrap")
            resized[spec.name] = np.ascontiguousarray(values)
    return resized


def _fixed(contract: Contract, axis: str, size: int, refused: int, case: str) -> Finding:
    inputs = names_with_axis(((spec.name, spec.shape) for spec in contract.inputs), axis)
    return Finding(
        "C106",
        f"axis {axis!r} is fixed at {size} inside the graph: the model refuses {refused} with all"
        f" other sizes as they were (inputs {', '.join(map(repr, inputs))})",
        Place(tensor=inputs[0] if inputs else None, case=case),
        {"axis": axis, "fixed": size, "failed_at": [refused], "proven": True},
        symbolic_shapes(axis),
    )

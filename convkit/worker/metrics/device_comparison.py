"""Compares low precision on a device with its simulation, case by case."""

import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseMetrics, SimulatedCase
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.runtime_interface.sessions import RunFailedError, Runnable

Tensors = Mapping[str, np.ndarray]


def compare_with_simulation(
    contract: Contract,
    device: Runnable,
    simulation: Runnable,
    cases: Iterable[str],
    feeds: Callable[[str], Tensors],
    expected: Callable[[str], Tensors],
    padding: Callable[[Tensors, str], np.ndarray | None],
) -> tuple[SimulatedCase, ...]:
    """Run every case on both; compare the simulation with the original, and the device with the
    simulation.

    `feeds` and `expected` return a case's inputs and the original's outputs, `padding` the
    positions where an output is meaningless. Cases that fail on either side are skipped: the
    verification reports them.
    """
    measured = []
    for case in cases:
        given = feeds(case)
        try:
            on_device, simulated = device.run(given), simulation.run(given)
        except RunFailedError:
            continue
        padded = functools.partial(padding, given)
        pairs = ((expected(case), simulated), (simulated, on_device))
        both = (CaseMetrics(case, 0.0, compare_outputs(contract, *each, padded)) for each in pairs)
        measured.append(SimulatedCase(*both))
    return tuple(measured)

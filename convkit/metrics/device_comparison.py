"""Compares low precision on a device with its simulation, case by case."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from convkit.metrics.tensors import compare
from convkit.worker.protocol import CaseMetrics, SimulatedCase
from convkit.worker.sessions import RunFailedError, RuntimeSession

Tensors = Mapping[str, np.ndarray]


def compare_with_simulation(
    device: RuntimeSession,
    simulation: RuntimeSession,
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
        original = expected(case)
        measured.append(
            SimulatedCase(
                simulation=_compared(case, original, simulated, given, padding),
                agreement=_compared(case, simulated, on_device, given, padding),
            )
        )
    return tuple(measured)


def _compared(
    case: str,
    reference: Tensors,
    candidate: Tensors,
    feeds: Tensors,
    padding: Callable[[Tensors, str], np.ndarray | None],
) -> CaseMetrics:
    outputs = tuple(
        compare(name, values, candidate[name], padding(feeds, name))
        for name, values in reference.items()
        if name in candidate
    )
    return CaseMetrics(case, 0.0, outputs)

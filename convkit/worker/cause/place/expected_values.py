"""What every value of an exported graph should be, so that a model built from it can be compared
node by node.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from convkit.protocol.messages import ViewBasis
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values
from convkit.worker.cause.matching.relative_difference import CLOSE
from convkit.worker.cause.matching.value_matching import match_values, worst_output_error
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.divergence_place import REMAINS


@dataclasses.dataclass(frozen=True)
class Expected:
    """Expected values by the graph's names; `found` are those that the graph computes.

    `deviation` is the graph's largest output error; `basis` and `corrected_at` are as in
    `ViewResult`.
    """

    values: Mapping[str, np.ndarray]
    found: Mapping[str, np.ndarray]
    deviation: float
    basis: ViewBasis
    corrected_at: tuple[str, ...] = ()


def expected_values(recording: Recording, graph: Graph, feeds: Values) -> Expected:
    """Return the expected values of a graph on one case.

    A graph whose outputs agree with the original's is its own standard. Otherwise its proven
    faults are replaced by the original's values, after which it is. If that does not repair the
    outputs, only values that the original computes as well are expected.
    """
    search = Divergence(recording, graph, feeds)
    found = search.found
    if search.error <= CLOSE:
        return Expected(found, found, search.error, "original")
    corrected: dict[str, np.ndarray] = {}
    for parting in search.partings():
        if parting.name in found and (parting.is_proven or parting.restored):
            wanted = parting.layout.apply(recording.values[parting.value].array)
            corrected[parting.name] = wanted.astype(found[parting.name].dtype)
            values = _with(graph, feeds, corrected)
            remaining = worst_output_error(recording, values)
            if remaining <= max(REMAINS * min(search.error, 1.0), CLOSE):
                return Expected(values, found, search.error, "corrected", tuple(corrected))
    known = search.originals(match_values(recording, found))
    return Expected(known, found, search.error, "matched")


def _with(graph: Graph, feeds: Values, corrected: Values) -> dict[str, np.ndarray]:
    names = [name for node in graph.nodes for name in node.output if name]
    given = {**feeds, **corrected}
    try:
        return {**graph.run([name for name in names if name not in corrected], given), **given}
    except PieceFailedError:
        return dict(given)

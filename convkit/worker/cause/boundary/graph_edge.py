"""A graph's edge: what its outputs become for other inputs, beside the original's."""

import dataclasses
import math

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import (
    VALUELESS,
    Graph,
    PieceFailedError,
    Values,
    label,
)
from convkit.worker.cause.matching.value_matching import worst_output_error
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.search_results import Cause

# Nodes from an input on: what is found wrong beyond them is not a change of the input.
_NEAR = 8


@dataclasses.dataclass(frozen=True)
class GraphEdge:
    """A graph, and the original's outputs for the same inputs."""

    recording: Recording
    graph: Graph
    feeds: Values

    def outputs(self, feeds: Values) -> dict[str, np.ndarray] | None:
        """Return the graph's outputs for other feeds; None if it cannot run on them."""
        try:
            return self.graph.run(list(self.recording.outputs), feeds)
        except PieceFailedError:
            return None

    def error(self, feeds: Values) -> float:
        """Return the outputs' largest error, in parts of their rms; infinite without outputs."""
        found = self.outputs(feeds)
        return math.inf if found is None else worst_output_error(self.recording, found)

    def reader(self, name: str) -> str | None:
        """Return the first node that reads an input."""
        readers = self.graph.readers.get(name, [])
        return label(self.graph.nodes[readers[0]]) if readers else None

    def is_near_input(self, cause: Cause) -> bool:
        """Say whether only a few nodes lie between an input and a cause, sizes not counted."""
        for node in self.graph.nodes:
            if cause.node == label(node):
                before = set(self.graph.closure(node.output, self.feeds))
                ways = (before & self._reached(name) for name in self.feeds)
                return any(0 < len(way) <= _NEAR for way in ways)
        return False

    def _reached(self, name: str) -> set[int]:
        """Return the nodes that an input's values reach: beyond a Shape only its sizes do."""
        reached: set[int] = set()
        pending = [name]
        while pending:
            for index in self.graph.readers.get(pending.pop(), []):
                if index not in reached and self.graph.nodes[index].op_type not in VALUELESS:
                    reached.add(index)
                    pending += self.graph.nodes[index].output
        return reached

    def producer(self, name: str) -> str | None:
        """Return the node that computes an output."""
        index = self.graph.producers.get(name)
        return label(self.graph.nodes[index]) if index is not None else None

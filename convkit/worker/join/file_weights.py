"""Weights in which a part that is an ONNX file differs from the original of the whole. The file can
run with the original's values, to prove that they make the joined outputs wrong.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract
from convkit.worker.cases.case import Feeds
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, read_graph
from convkit.worker.cause.recording.torch_recording import state_of
from convkit.worker.cause.weights.traced_weights import WeightDifference, compare_weights
from convkit.worker.join.joined_original import OnnxPart
from convkit.worker.runtime_interface.sessions import RunFailedError

if TYPE_CHECKING:
    import torch

# Bytes. A larger file's weights are not held beside the original's.
_LARGEST = 4 << 30


@dataclasses.dataclass(frozen=True)
class FileWeights:
    """The weights of one part's file that should hold other values: the original's."""

    part: str
    graph: Graph
    contract: Contract
    differences: tuple[WeightDifference, ...]

    def corrected(self, differences: tuple[WeightDifference, ...]) -> "CorrectedPart":
        """Return the part with some of the original's values."""
        values = {each.weight: each.corrected for each in differences}
        return CorrectedPart(self.graph.with_nodes(self.graph.nodes, values), self.contract)


@dataclasses.dataclass(frozen=True)
class CorrectedPart:
    """A part's graph with other weights."""

    graph: Graph
    contract: Contract

    def run(self, feeds: Feeds) -> Feeds:
        """Return the part's outputs, by the contract's names; raises RunFailedError."""
        given = {
            spec.origin or spec.name: np.asarray(feeds[spec.name], order="C")
            for spec in self.contract.inputs
        }
        names = {spec.name: spec.origin or spec.name for spec in self.contract.outputs}
        try:
            found = self.graph.run(list(names.values()), given)
        except PieceFailedError as error:
            raise RunFailedError(str(error)) from error
        return {name: found[own] for name, own in names.items()}


def file_weights(parts: Mapping[str, OnnxPart], whole: "torch.nn.Module") -> Iterator[FileWeights]:
    """Yield what differs in each part's file, matched with the original by name and content."""
    state: dict[str, np.ndarray] | None = None
    for name, part in parts.items():
        if part.path.stat().st_size > _LARGEST:
            continue
        if state is None:
            state = state_of(whole)
        graph = read_graph(part.path)
        if found := compare_weights(graph, state).differences:
            yield FileWeights(name, graph, part.contract, found)

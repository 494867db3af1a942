"""Candidate explanations in a translated model's own terms: one of its operations with another
argument, or another operation in its place.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.other_formats.source_model import SourceModel
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    SourceStep,
    Translation,
)
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, in_order
from convkit.worker.cause.search_types.search_results import Kind
from convkit.worker.graph.operators.node_builder import INSIDE

# What a translation raises for arguments that it does not know.
UNFIT = (NotTranslatedError, KeyError, ValueError, TypeError, IndexError)


@dataclasses.dataclass(frozen=True)
class Alternative:
    """An operation that a converter could have confused with its own: `text` says how they differ,
    `constants` are values that it reads and the model does not have.
    """

    kind: Kind
    text: str
    step: SourceStep
    constants: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


# A format's alternatives to an operation, for the place that the search is at. The values are those
# of the case, by name; a second call has to yield the same.
Alternatives: TypeAlias = Callable[
    [SourceStep, Mapping[str, np.ndarray], Region], Iterator[Alternative]
]


@dataclasses.dataclass(frozen=True)
class OwnOperations:
    """The model that a graph is the translation of."""

    source: SourceModel
    translations: Mapping[str, Translation]
    alternatives: Alternatives

    def rewrites(self, region: Region) -> Iterator[Rewrite]:
        """Translate alternatives to the operations of a place, last ones first."""
        graph = region.graph
        values = {**self.source.constants, **self.source.values}
        steps = {name: step for step in self.source.steps for name in step.results}
        for result in dict.fromkeys(_owner(graph.nodes[index]) for index in region.nodes[::-1]):
            step = steps.get(result)
            computed = [] if step is None else [n for n in step.results if n in graph.producers]
            if step is None or not computed:
                continue
            for each in self.alternatives(step, values, region):
                rewritten = self._with(graph, values, each)
                if rewritten is not None:
                    yield Rewrite(each.kind, computed[0], each.text, rewritten)

    def _with(
        self, graph: Graph, values: Mapping[str, np.ndarray], other: Alternative
    ) -> Graph | None:
        """Return the graph with another operation; None if that has no translation."""
        step = other.step
        known = {**values, **other.constants}
        constants = {**graph.constants, **other.constants}
        operation = SourceOperation(step.results[0], constants=constants, step=step, values=known)
        try:
            operation.translate(self.translations[step.kind])
        except UNFIT:
            return None
        new = {n: v for n, v in constants.items() if v is not graph.constants.get(n)}
        return in_order(graph.with_nodes(_exchanged(graph, step.results, operation.nodes), new))


def own_operations(region: Region) -> Iterator[Rewrite]:
    """Change an operation of the format that the graph was translated from."""
    own = region.graph.own
    if isinstance(own, OwnOperations):
        yield from own.rewrites(region)


def _exchanged(
    graph: Graph, results: Sequence[str], nodes: Sequence[onnx.NodeProto]
) -> list[onnx.NodeProto]:
    """Return the graph's nodes with those of one operation replaced."""
    found: list[onnx.NodeProto] = []
    placed = False
    for node in graph.nodes:
        if _owner(node) not in results:
            found.append(node)
        elif not placed:
            found += nodes
            placed = True
    return found


def _owner(node: onnx.NodeProto) -> str:
    return str(node.name).partition(INSIDE)[0]

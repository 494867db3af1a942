"""The place where both sides diverge: nodes of the graph, operations of the original, and the
original's own values as inputs of both.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, reads
from convkit.worker.cause.matching.axis_layouts import AxisLayout
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.recorded_call import VIEWS, Operation, Recording
from convkit.worker.cause.search_types.divergence_place import Parting


@dataclasses.dataclass(frozen=True)
class RegionEdge:
    """A value as one node reads it: the input at `place` of the node that computes `reader`."""

    reader: str
    place: int
    value: str


@dataclasses.dataclass(frozen=True)
class Region:
    """The wrong part of the graph, ready to be computed from the original's own values.

    `feeds` are the known values around it, `expected` is the correct value of `target`.
    `operations` are the original's counterpart, which read `weights` and, if the graph has them
    too, the values in `read`. `shapes` and `dtypes` are those of the unchanged graph's values.
    `inner` are the values that the operations compute, by their numbers in the recording, and
    `numbers` those of the feeds. `own` are the feeds as the original lays them out, and
    `layouts` lead from there to the graph.
    """

    graph: Graph
    target: str
    feeds: Mapping[str, np.ndarray]
    expected: np.ndarray
    operations: tuple[Operation, ...]
    weights: Mapping[str, np.ndarray]
    read: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype] = dataclasses.field(default_factory=dict)
    inner: Mapping[int, np.ndarray] = dataclasses.field(default_factory=dict)
    numbers: Mapping[str, int] = dataclasses.field(default_factory=dict)
    own: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    layouts: Mapping[str, AxisLayout] = dataclasses.field(default_factory=dict)

    def error(self, graph: Graph) -> float:
        """Return the target's error in a rewritten graph; infinity if it cannot be computed."""
        try:
            found = graph.run([self.target], self.feeds)
        except PieceFailedError:
            return math.inf
        return relative_error(found[self.target], self.expected) if found else math.inf

    def computed(self, graph: Graph) -> np.ndarray | None:
        """Return the target as a rewritten graph computes it; None if it cannot be computed."""
        try:
            return graph.run([self.target], self.feeds)[self.target]
        except (PieceFailedError, KeyError):
            return None

    def found(self, kinds: str = "f") -> np.ndarray | None:
        """Return the target as the graph computes it; None if its shape or kind of numbers is not
        the expected one, or not among `kinds` (numpy's letters).
        """
        found = self.computed(self.graph)
        if found is None or found.shape != self.expected.shape:
            return None
        alike = found.dtype.kind == self.expected.dtype.kind
        return found if alike and found.dtype.kind in kinds else None

    @property
    def nodes(self) -> list[int]:
        """The graph's nodes of the region, in order."""
        return self.graph.closure([self.target], self.feeds)

    def reads(self, name: str) -> bool:
        """Say whether a node of the region reads a value."""
        return any(name in self.graph.nodes[index].input for index in self.nodes)

    def edges(self) -> Iterator[RegionEdge]:
        """Yield the inputs of the region's nodes except constants, last nodes first."""
        for index in reversed(self.nodes):
            node = self.graph.nodes[index]
            for place, name in enumerate(node.input):
                if name and name not in self.graph.constants and name not in self.graph.exotic:
                    yield RegionEdge(node.output[0], place, name)

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants that the region reads."""
        names = [name for index in self.nodes for name in reads(self.graph.nodes[index])]
        for name in dict.fromkeys(names):
            if name in self.graph.constants:
                yield name, self.graph.constants[name]

    def scalars(self) -> list[float]:
        """Return the numbers among the arguments of the original's operations, each once."""
        found: list[float] = []
        for operation in self.operations:
            for _, value in operation.scalars:
                numbers = value if isinstance(value, tuple) else (value,)
                found += [float(each) for each in numbers if isinstance(each, int | float)]
        return list(dict.fromkeys(found))


def region_of(
    recording: Recording,
    graph: Graph,
    parting: Parting,
    originals: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
) -> Region:
    """Return the region that ends where a graph diverges from its original.

    `originals` are the original's known values in the graph's layout, `found` are the graph's own
    values.
    """
    layout: AxisLayout = parting.layout
    expected = layout.apply(recording.values[parting.value].array)
    if parting.name in found:
        expected = expected.astype(found[parting.name].dtype, copy=False)
    known = {match.value for match in parting.known.values()}
    operations = [
        recording.operations[index] for index in recording.closure([parting.value], known)
    ]
    read_values = {each for operation in operations for each in operation.inputs}
    weights = {}
    for index in sorted(read_values):
        value = recording.values[index]
        if value.kind == "weight" or (index in recording.fixed and value.array.size > 1):
            name = _name(recording, index)
            # What is computed from a weight, a slice of it for instance, is another tensor.
            weights[_step(recording, index) if name in weights else name] = value.array
    read = [name for name, match in parting.known.items() if match.value in read_values]
    feeds = {name: originals[name] for name in parting.known if name in originals}
    shapes = {name: values.shape for name, values in found.items()}
    inner = {n: recording.values[n].array for each in operations for n in each.outputs}
    return Region(
        graph,
        parting.name,
        feeds,
        expected,
        tuple(operations),
        weights,
        tuple(read),
        shapes,
        {name: values.dtype for name, values in found.items()},
        inner,
        {name: parting.known[name].value for name in feeds},
        {name: recording.values[parting.known[name].value].array for name in feeds},
        {name: parting.known[name].layout for name in feeds},
    )


def _name(recording: Recording, index: int) -> str:
    """Return a weight's name, or the names of those that a constant is computed from."""
    value = recording.values[index]
    if value.name:
        return value.name
    sources = _weights_of(recording, index)
    if len(sources) in (1, 2, 3):
        return " and ".join(sources)
    return _step(recording, index)


def _step(recording: Recording, index: int) -> str:
    """Return the operation that computes a constant, with its line, and the weights it is of. What
    only rearranges it has nothing to say.
    """
    producer = recording.values[index].producer
    while producer is not None and recording.operations[producer].kind in VIEWS:
        index = recording.operations[producer].inputs[0]
        producer = recording.values[index].producer
    if producer is None:
        return f"constant {index}"
    operation = recording.operations[producer]
    sources = _weights_of(recording, index)
    of = f" of {' and '.join(sources)}" if len(sources) in (1, 2, 3) else ""
    line = f" (at {operation.source})" if operation.source else ""
    return f"{operation.kind.strip('_')}{of}{line}"


def _weights_of(recording: Recording, index: int) -> list[str]:
    read = {
        recording.values[each].name
        for operation in recording.closure([index], ())
        for each in recording.operations[operation].inputs
        if recording.values[each].kind == "weight"
    }
    return sorted(read)

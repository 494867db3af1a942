"""A model of another format as the search for causes reads it: an ONNX graph, in one case.

The model's values name the graph's. Sizes and axes are written as they are in the case. What has no
translation, or one that does not compute what the model computed, is a constant instead: the search
takes its value as given.
"""

import dataclasses
from collections.abc import Mapping

import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.other_formats.format_operations import UNFIT, Alternatives, OwnOperations
from convkit.worker.cause.other_formats.source_model import SourceModel
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    SourceStep,
    Translation,
)
from convkit.worker.graph.operators.formulas import OPSET
from convkit.worker.graph.operators.node_builder import INSIDE

_IR_VERSION = 9
# Operations that are taken as given, one after the other, because their translations are wrong.
_MOST_OPAQUE = 8


@dataclasses.dataclass(frozen=True)
class TranslatedGraph:
    """A model as a graph; `kinds` are its own operations by the name of their first result,
    `opaque` those that are taken as given, `shapes` the sizes of values.
    """

    graph: Graph
    kinds: Mapping[str, str]
    opaque: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)


def translate(
    source: SourceModel,
    translations: Mapping[str, Translation],
    alternatives: Alternatives | None = None,
) -> TranslatedGraph | None:
    """Translate a model; None if the graph does not compute what the model computed.

    `alternatives` are what the search tries in the place of each of the model's own operations.
    """
    opaque: set[str] = set()
    for _ in range(_MOST_OPAQUE):
        made = _Translator(source, translations, opaque).translated()
        wrong = _first_wrong(made.graph, source)
        if wrong is None:
            if alternatives is None:
                return made
            own = OwnOperations(source, translations, alternatives)
            return dataclasses.replace(made, graph=dataclasses.replace(made.graph, own=own))
        opaque.add(wrong)
    return None


def _first_wrong(graph: Graph, source: SourceModel) -> str | None:
    """Return the first operation of which the graph computes something else."""
    values = source.values
    feeds = {name: values[name] for name in source.inputs}
    names = [name for node in graph.nodes for name in node.output if name in values]
    try:
        found = graph.run(names, feeds)
    except PieceFailedError:
        found = {}
        for node in graph.nodes:
            known = {name: values[name] for name in node.input if name in values}
            wanted = [name for name in node.output if name in values]
            try:
                found |= graph.run(wanted, {**feeds, **known})
            except PieceFailedError:
                return owner(str(node.name))
    for node in graph.nodes:
        for name in node.output:
            if name in found and not relative_error(found[name], values[name]) <= CLOSE:
                return owner(str(node.name))
    return None


def owner(name: str) -> str:
    """Return the operation that a node or a value of a translation belongs to."""
    return name.partition(INSIDE)[0]


class _Translator:
    def __init__(
        self, source: SourceModel, translations: Mapping[str, Translation], opaque: set[str]
    ) -> None:
        self._source, self._translations, self._opaque = source, translations, opaque
        self._values = {**source.constants, **source.values}
        self._taken_as_given: list[str] = []
        self._nodes: list[onnx.NodeProto] = []
        self._constants = dict(source.constants)
        self._moving = set(source.inputs)

    def translated(self) -> TranslatedGraph:
        """Translate the whole model."""
        for step in self._source.steps:
            self._step(step)
        nodes, outputs = tuple(self._nodes), self._source.outputs
        read = {name for node in nodes for name in node.input} | set(outputs)
        constants = {name: values for name, values in self._constants.items() if name in read}
        inputs = self._source.inputs
        graph = Graph(nodes, inputs, outputs, constants, {}, _IR_VERSION, (("", OPSET),))
        kinds = {step.results[0]: step.kind for step in self._source.steps}
        shapes = {name: values.shape for name, values in self._values.items()}
        return TranslatedGraph(graph, kinds, tuple(self._taken_as_given), shapes)

    def _step(self, step: SourceStep) -> None:
        moves = not step.of_sizes and not self._moving.isdisjoint(_read(step))
        if moves:
            self._moving.update(step.results)
        if not moves and self._values[step.results[0]].dtype.kind != "f":
            self._give(step)  # sizes and what is computed from them
            return
        nodes, constants = len(self._nodes), set(self._constants)
        operation = SourceOperation(
            step.results[0], self._nodes, self._constants, step=step, values=self._values
        )
        try:
            if step.kind not in self._translations or not self._opaque.isdisjoint(step.results):
                raise NotTranslatedError(step.kind)
            operation.translate(self._translations[step.kind])
        except UNFIT:
            del self._nodes[nodes:]
            for name in self._constants.keys() - constants:
                del self._constants[name]
            self._taken_as_given.append(step.results[0])
            self._give(step)

    def _give(self, step: SourceStep) -> None:
        """Take a step's results as they are in the case."""
        for name in step.results:
            self._constants[name] = self._values[name]


def _read(step: SourceStep) -> set[str]:
    given = step.arguments.values()
    return {name for each in given for name in (each if isinstance(each, tuple) else (each,))}

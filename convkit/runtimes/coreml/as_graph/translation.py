"""An ML program as the search for causes reads it: an ONNX graph, in one case.

A program's values name the graph's. Sizes and axes are written as they are in the case, and
float16 as float32: the search is for what a program computes, not for how it rounds. What has no
translation, or one that does not compute what the evaluator computes, is a constant instead: the
search takes its value as given.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from convkit.localize.graph import Graph, PieceFailedError
from convkit.localize.matching import CLOSE, relative_error
from convkit.mil.constant_values import ConstantValues
from convkit.mil.evaluator import Evaluator, Watcher
from convkit.mil.plan import Plan, Result, Step
from convkit.mil.program import Program
from convkit.runtimes.coreml.as_graph.arithmetic import ARITHMETIC, Translation
from convkit.runtimes.coreml.as_graph.arranging import ARRANGING
from convkit.runtimes.coreml.as_graph.layers import LAYERS
from convkit.runtimes.coreml.as_graph.writing import INSIDE, NotTranslatedError, Operation, Writer

TRANSLATIONS: dict[str, Translation] = {**ARITHMETIC, **ARRANGING, **LAYERS}

_OPSET, _IR_VERSION = 20, 9
# Operations that are taken as given, one after the other, because their translations are wrong.
_MOST_OPAQUE = 8
# These read no values, only sizes.
_OF_SIZES = frozenset({"shape"})


@dataclasses.dataclass(frozen=True)
class TranslatedProgram:
    """A program as a graph; `kinds` are its operations by the name of their first result, `opaque`
    those that have no translation.
    """

    graph: Graph
    kinds: Mapping[str, str]
    opaque: tuple[str, ...]


def as_graph(program: Program, feeds: Mapping[str, np.ndarray]) -> TranslatedProgram | None:
    """Translate a program for one case; None if the graph does not compute what the program does.

    `feeds` are as the program takes them. Raises what the evaluator raises.
    """
    evaluator = Evaluator(program)
    watched = _Values()
    evaluator.run(feeds, watcher=watched)
    values = {**watched.found, **{name: _plain(array) for name, array in feeds.items()}}
    opaque: set[str] = set()
    for _ in range(_MOST_OPAQUE):
        made = _Translator(program, evaluator.plan, values, opaque).translated()
        wrong = _first_wrong(made.graph, values, feeds)
        if wrong is None:
            return made
        opaque.add(wrong)
    return None


def _first_wrong(
    graph: Graph, values: Mapping[str, np.ndarray], feeds: Mapping[str, np.ndarray]
) -> str | None:
    """Return the first operation of which the graph computes something else."""
    given = {name: _plain(array) for name, array in feeds.items()}
    names = [name for node in graph.nodes for name in node.output if name in values]
    try:
        found = graph.run(names, given)
    except PieceFailedError:
        found = {}
        for node in graph.nodes:
            known = {name: values[name] for name in node.input if name in values}
            wanted = [name for name in node.output if name in values]
            try:
                found |= graph.run(wanted, {**given, **known})
            except PieceFailedError:
                return _owner(str(node.name))
    for node in graph.nodes:
        for name in node.output:
            if name in found and not relative_error(found[name], values[name]) <= CLOSE:
                return _owner(str(node.name))
    return None


def _owner(name: str) -> str:
    """Return the operation that a node or a value belongs to."""
    return name.partition(INSIDE)[0]


class _Values(Watcher):
    """Keeps every value of a run, by name."""

    def __init__(self) -> None:
        self.found: dict[str, np.ndarray] = {}

    def given(
        self, step: Step, result: Result, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del step, computed
        self.found[result.name] = _plain(stored.detach().numpy())
        return stored


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else np.array(array)


class _Translator:
    def __init__(
        self, program: Program, plan: Plan, values: Mapping[str, np.ndarray], opaque: set[str]
    ) -> None:
        self._program, self._plan = program, plan
        self._values = dict(values)
        self._opaque = opaque
        self._taken_as_given: list[str] = []
        self._settings: dict[str, Any] = {}
        self._stored = ConstantValues()
        self._writer = Writer()
        self._moving = {each.name for each in program.inputs}
        self._kinds: dict[str, str] = {}

    def translated(self) -> TranslatedProgram:
        """Translate the whole program."""
        self._block(self._plan)
        read = {name for node in self._writer.nodes for name in node.input}
        outputs = tuple(each.name for each in self._program.outputs)
        constants = {
            name: values
            for name, values in self._writer.constants.items()
            if name in read or name in outputs
        }
        graph = Graph(
            tuple(self._writer.nodes),
            tuple(each.name for each in self._program.inputs),
            outputs,
            constants,
            {},
            _IR_VERSION,
            (("", _OPSET),),
        )
        return TranslatedProgram(graph, self._kinds, tuple(self._taken_as_given))

    def _block(self, plan: Plan) -> None:
        for step in plan.steps:
            if step.results and all(each.name in self._values for each in step.results):
                self._step(step)

    def _step(self, step: Step) -> None:
        arguments = dict(self._arguments(step))
        reads = [n for each in arguments.values() for n in (each if _several(each) else (each,))]
        results = tuple(each.name for each in step.results)
        moves = step.operation not in _OF_SIZES and any(name in self._moving for name in reads)
        self._kinds[results[0]] = step.operation
        if moves:
            self._moving.update(results)
        if not moves and self._values[results[0]].dtype.kind != "f":
            self._give(results)
            return
        operation = Operation(
            step.operation, results, arguments, self._values, self._settings, self._writer
        )
        translate = TRANSLATIONS.get(step.operation)
        nodes, constants = list(self._writer.nodes), dict(self._writer.constants)
        try:
            if translate is None or self._opaque.intersection(results) or step.states:
                raise NotTranslatedError(step.operation)
            translate(operation)
        except (NotTranslatedError, KeyError, ValueError, TypeError, IndexError):
            self._writer.nodes, self._writer.constants = nodes, constants
            self._taken_as_given.append(results[0])
            self._give(results)

    def _give(self, results: tuple[str, ...]) -> None:
        """Take values as they are in the case."""
        for name in results:
            self._writer.constants[name] = self._values[name]

    def _arguments(self, step: Step) -> Iterator[tuple[str, str | tuple[str, ...]]]:
        for name, given in step.arguments:
            if isinstance(given, tuple):
                yield name, tuple(self._named(each) for each in given)
            else:
                yield name, self._named(given)

    def _named(self, variable: Any) -> str:  # noqa: ANN401 - coremltools' Var
        """Return a variable's name, its value noted if it is a constant."""
        name = str(variable.name)
        if name not in self._values and name not in self._settings:
            value = self._stored.get(variable)
            if isinstance(value, torch.Tensor):
                self._values[name] = self._writer.constants[name] = _plain(value.numpy())
            else:
                self._settings[name] = value
        return name


def _several(each: str | tuple[str, ...]) -> bool:
    return isinstance(each, tuple)

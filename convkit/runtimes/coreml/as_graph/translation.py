"""Translates an ML program in one case."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from convkit.runtimes.coreml.as_graph.alternatives import alternatives
from convkit.runtimes.coreml.as_graph.arithmetic import ARITHMETIC
from convkit.runtimes.coreml.as_graph.arranging import ARRANGING
from convkit.runtimes.coreml.as_graph.layers import LAYERS
from convkit.runtimes.coreml.as_graph.placing import PLACING
from convkit.worker.cause.other_formats.source_model import SourceModel
from convkit.worker.cause.other_formats.source_operation import SourceStep, Translation
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph, translate
from convkit.worker.mil.constant_values import ConstantValues
from convkit.worker.mil.evaluation.evaluator import Evaluator, Watcher
from convkit.worker.mil.evaluation.execution_plan import Plan, ProgramStep, StepResult
from convkit.worker.mil.program import Program

TRANSLATIONS: dict[str, Translation] = {**ARITHMETIC, **ARRANGING, **LAYERS, **PLACING}


def as_graph(program: Program, feeds: Mapping[str, np.ndarray]) -> TranslatedGraph | None:
    """Translate a program for one case; None if the graph does not compute what the program does.

    `feeds` have the program's names and types. Raises the evaluator's errors.
    """
    evaluator = Evaluator(program)
    names = _contract_names(program, evaluator.plan)
    watched = _Values(names)
    evaluator.run(feeds, watcher=watched)
    watched.found |= {name: _plain(array) for name, array in feeds.items()}
    reading = _Reading(watched.found, names)
    steps = list(reading.steps(evaluator.plan))
    source = SourceModel(
        steps,
        tuple(each.name for each in program.inputs),
        tuple(each.name for each in program.outputs),
        reading.constants,
        watched.found,
    )
    return translate(source, TRANSLATIONS, alternatives)


def _contract_names(program: Program, plan: Plan) -> dict[str, str]:
    """Return the contract's names of inputs and outputs whose variables have others."""
    pairs = (
        *zip(plan.inputs, program.inputs, strict=True),
        *zip(plan.outputs, program.outputs, strict=True),
    )
    return {var.name: each.name for var, each in pairs if var.name != each.name}


class _Values(Watcher):
    """Keeps every value of a run, by name."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.found: dict[str, np.ndarray] = {}

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del step, computed
        self.found[self._names.get(result.name, result.name)] = _plain(stored.detach().numpy())
        return stored


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else np.array(array)


class _Reading:
    """Reads a program's operations; `constants` are those that they read."""

    def __init__(self, values: Mapping[str, np.ndarray], names: Mapping[str, str]) -> None:
        self._values = values
        self._names = names
        self._stored = ConstantValues()
        self.constants: dict[str, np.ndarray] = {}

    def steps(self, plan: Plan) -> Iterator[SourceStep]:
        """Yield a block's operations, those of a branch that was taken included. A loop is one
        operation: the values inside it are those of its last round.
        """
        for step in plan.steps:
            if step.operation == "cond":
                yield from self._branch(step)
            elif step.results:
                yield self._step(step)

    def _branch(self, step: ProgramStep) -> Iterator[SourceStep]:
        condition = next(name for argument, name in step.arguments if argument == "pred")
        taken = step.blocks[0 if bool(self._value(condition)) else 1]
        yield from self.steps(taken)
        for result, output in zip(step.results, taken.outputs, strict=True):
            given = self._named(output, "x", {})
            to = self._names.get(result.name, result.name)
            yield SourceStep("identity", (to,), {"x": given}, {})

    def _value(self, variable: Any) -> np.ndarray:  # noqa: ANN401
        name = self._named(variable, "", {})
        return self._values[name] if name in self._values else self.constants[name]

    def _step(self, step: ProgramStep) -> SourceStep:
        arguments: dict[str, str | tuple[str, ...]] = {}
        settings: dict[str, Any] = {}
        for name, given in step.arguments:
            several = given if isinstance(given, tuple) else (given,)
            known = tuple(self._named(each, name, settings) for each in several)
            if name not in settings:
                arguments[name] = known if isinstance(given, tuple) else known[0]
        results = tuple(self._names.get(each.name, each.name) for each in step.results)
        kind = "state" if step.states else step.operation
        return SourceStep(kind, results, arguments, settings, of_sizes=kind == "shape")

    def _named(self, variable: Any, argument: str, settings: dict[str, Any]) -> str:  # noqa: ANN401 - coremltools' Var
        """Return a variable's name; what is not a tensor goes to the settings."""
        name = self._names.get(variable.name, str(variable.name))
        if name not in self._values and name not in self.constants:
            value = self._stored.get(variable)
            if isinstance(value, torch.Tensor):
                self.constants[name] = _plain(value.numpy())
            else:
                settings[argument] = value
        return name

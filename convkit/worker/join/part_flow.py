"""Runs the parts of a model in the recipe's order, independent of each part's runtime."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.messages import Call, Flow, Loop
from convkit.protocol.numpy_dtypes import numpy_dtype
from convkit.worker.cases.case import Feeds
from convkit.worker.runtime_interface.sessions import NotServedError, RunFailedError

# Runs one call: the call, the number of the loop's pass (0 outside of loops), its inputs.
Run = Callable[[Call, int, Feeds], Feeds]


@dataclasses.dataclass(frozen=True)
class Wiring:
    """A flow with the contracts of the whole and of its parts."""

    flow: Flow
    contract: Contract
    parts: Mapping[str, Contract]

    def run(self, feeds: Feeds, run: Run) -> Feeds:
        """Return the whole's outputs; raises RunFailedError, which names the call that failed.

        An output with the axis of a loop collects what every pass returned; any other is that of
        the last pass.
        """
        values: Feeds = dict(feeds)
        passes: dict[str, tuple[str, list[np.ndarray]]] = {}
        for step in self.flow.steps:
            if isinstance(step, Call):
                self._call(step, 0, self._inputs(step, values, {}), values, run)
                continue
            for name, collected in self._loop(step, values, run).items():
                passes[name] = (step.axis, collected)
        outputs = {}
        for spec in self.contract.outputs:
            source = self.flow.outputs[spec.name]
            axis, collected = passes.get(source, ("", []))
            outputs[spec.name] = (
                np.concatenate(collected, axis=spec.shape.index(axis))
                if axis in spec.shape
                else values[source]
            )
        return outputs

    def _loop(self, loop: Loop, values: Feeds, run: Run) -> dict[str, list[np.ndarray]]:
        """Run a loop, leaving its last pass's values; return every pass's values by name."""
        cut = {
            spec.name: spec.shape.index(loop.axis)
            for spec in self.contract.inputs
            if loop.axis in spec.shape
        }
        count = min(values[name].shape[place] for name, place in cut.items())
        carried: dict[tuple[str, str], np.ndarray] = {}
        passes: dict[str, list[np.ndarray]] = {}
        for number in range(count):
            here = dict(values)
            for name, place in cut.items():
                here[name] = np.take(values[name], [number], axis=place)
            for call in loop.calls:
                found = self._call(call, number, self._inputs(call, here, carried), here, run)
                for name, array in found.items():
                    passes.setdefault(name, []).append(array)
            carried = {(each.call, each.input): here[each.value] for each in loop.carried}
        values.update({name: arrays[-1] for name, arrays in passes.items()})
        return passes

    def _inputs(
        self, call: Call, values: Feeds, carried: Mapping[tuple[str, str], np.ndarray]
    ) -> Feeds:
        contract = self.parts[call.part]
        feeds: Feeds = {}
        for spec in contract.inputs:
            if (call.name, spec.name) in carried:
                feeds[spec.name] = carried[call.name, spec.name]
            elif spec.name in call.inputs:
                feeds[spec.name] = values[call.inputs[spec.name]]
        for spec in contract.inputs:
            if spec.name not in feeds:
                feeds[spec.name] = _zeros(spec, contract, feeds)
        return {spec.name: feeds[spec.name] for spec in contract.inputs}

    @staticmethod
    def _call(call: Call, number: int, feeds: Feeds, values: Feeds, run: Run) -> Feeds:
        """Run a call and add its outputs to the values; return them."""
        try:
            outputs = run(call, number, feeds)
        except NotServedError as error:
            raise NotServedError(f"{call.name}: {error}") from error
        except RunFailedError as error:
            where = f"{call.name}, pass {number + 1}" if number else call.name
            raise RunFailedError(f"{where}: {error}") from error
        found = {f"{call.name}.{name}": array for name, array in outputs.items()}
        values.update(found)
        return found


def _zeros(spec: TensorSpec, contract: Contract, feeds: Feeds) -> np.ndarray:
    """Return what a fed input starts from: zeros, with the axes that no other input has (a cache's
    length) at their smallest size.
    """
    sizes = {axis.name: axis.min for axis in contract.axes}
    for other in contract.inputs:
        if other.name in feeds:
            for dimension, size in zip(other.shape, feeds[other.name].shape, strict=True):
                if dimension_axes(dimension) == (dimension,):
                    sizes[str(dimension)] = size
    shape = [dimension_size(dimension, sizes) for dimension in spec.shape]
    return np.zeros(shape, numpy_dtype(spec.dtype))


def calls_of(flow: Flow) -> tuple[Call, ...]:
    """Return all calls, those in loops included, in their order."""
    found: list[Call] = []
    for step in flow.steps:
        found += [step] if isinstance(step, Call) else step.calls
    return tuple(found)

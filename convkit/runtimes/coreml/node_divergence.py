"""Finds where a float32 program diverges from the original: both run on one case, node by node.

The original is torch.export's program, whose nodes coremltools translates one by one. It names the
ML program's tensors after them, so values need not be matched. A difference is proven to be the
cause if the original's values there make the outputs correct.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from convkit.runtimes.coreml.conversion.module_conversion import Converted
from convkit.runtimes.coreml.packages.input_types import as_served
from convkit.worker.building.operation_origin import OperationOrigin
from convkit.worker.building.program_run import ProgramRun
from convkit.worker.mil.evaluation.evaluator import Evaluator, Watcher
from convkit.worker.mil.evaluation.execution_plan import ProgramStep, StepResult
from convkit.worker.mil.operation_modules import debug_handle

Tensors = Mapping[str, np.ndarray]

# Errors are relative to the expected values' RMS. Values computed from the original's own agree to
# about a millionth.
_SAME = 1e-5
# With the original's values at the differing places, at most this fraction of the outputs' error
# may remain.
EXPLAINS = 0.1
_INT32 = np.iinfo(np.int32)


@dataclasses.dataclass(frozen=True)
class ProgramParting:
    """A place that is wrong although its inputs are correct: the program's operation and tensor,
    and their source. `error` is the tensor's, `found` and `original` are the values that differ
    most.
    """

    origin: OperationOrigin
    operation: str
    tensor: str
    error: float
    found: float
    original: float


@dataclasses.dataclass(frozen=True)
class Beyond:
    """A node with integers beyond int32; `value` is the largest of them."""

    origin: OperationOrigin
    value: int


@dataclasses.dataclass(frozen=True)
class ProgramDivergence:
    """The result of a comparison: errors of the outputs, and the places in program order.

    `traced` is the error of torch.export's program itself, `error` that of the ML program, `after`
    the error remaining with the original's values at all places. `originals` are the original's
    values by the program's names, `reads` the values that each node reads by its own name.
    """

    traced: float
    error: float
    after: float
    partings: tuple[ProgramParting, ...]
    beyond: Beyond | None
    originals: Tensors = dataclasses.field(default_factory=dict)
    reads: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def is_proven(self) -> bool:
        """Return True if the original's values at the places make the outputs correct."""
        return bool(self.partings) and self.after <= max(self.error * EXPLAINS, _SAME)


def find_divergence(
    converted: Converted, feeds: Mapping[str, torch.Tensor], expected: Tensors
) -> ProgramDivergence:
    """Compare a float32 program with its source, on one case in the contract's types, with inputs
    in its order.

    Raises ValueError for a program that torch.export did not trace, and any error of the
    evaluation.
    """
    exported = converted.source.exported
    if exported is None:
        raise ValueError("torch.jit.trace keeps no nodes to compare with")
    recorder = _Recorder(exported.module())
    with torch.no_grad():
        # As the program was traced: `traced_program` has inputs of bools as integers.
        outputs = recorder.run(
            *(each.to(torch.int32) if each.dtype == torch.bool else each for each in feeds.values())
        )
    traced = {name: each.numpy() for name, each in zip(expected, outputs, strict=True)}
    given = served(converted, feeds)
    evaluator = Evaluator(converted.program, converted.modules)
    error = outputs_error(evaluator.run(given).outputs, expected)
    comparison = _Comparison(recorder.values, converted.source.origins)
    evaluator.run(given, watcher=comparison)
    after = _error_with_originals(evaluator, given, comparison, expected)
    if comparison.partings and (unnamed := comparison.unnamed()):
        named = _Comparison(recorder.values, converted.source.origins, unnamed)
        evaluator.run(given, watcher=named)
        # A tensor that is not its node's result would be wrong, and what reads it as well.
        if 0 < len(named.partings) <= len(comparison.partings):
            error_with = _error_with_originals(evaluator, given, named, expected)
            if error_with <= max(error * EXPLAINS, _SAME):
                comparison, after = named, error_with
    return ProgramDivergence(
        outputs_error(traced, expected),
        error,
        after,
        tuple(comparison.partings),
        _beyond(converted, recorder, comparison.partings),
        {name: values.numpy() for name, values in comparison.originals.items()},
        {
            node.name: tuple(each.name for each in node.all_input_nodes)
            for node in recorder.module.graph.nodes
        },
    )


def _error_with_originals(
    evaluator: Evaluator, given: Tensors, comparison: "_Comparison", expected: Tensors
) -> float:
    """Return the error of the outputs with the original's values at all places."""
    wrong = {each.tensor for each in comparison.partings}
    put = _Put({name: values for name, values in comparison.originals.items() if name in wrong})
    return outputs_error(evaluator.run(given, watcher=put).outputs, expected)


def _beyond(
    converted: Converted, recorder: "_Recorder", partings: Sequence[ProgramParting]
) -> Beyond | None:
    """Return the first node with integers beyond int32, among those that the first place depends
    on; among all, if no place is known.
    """
    nodes = {node.name: node for node in recorder.module.graph.nodes}
    sources = _ancestors(nodes[partings[0].origin.name]) if partings else set(nodes)
    for name, values in recorder.whole.items():
        large = values[(values > _INT32.max) | (values < _INT32.min)]
        if name in sources and large.numel():
            origin = converted.source.origins[recorder.handles[name]]
            return Beyond(origin, int(large[large.double().abs().argmax()]))
    return None


def _ancestors(node: torch.fx.Node) -> set[str]:
    found: set[str] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if each.name not in found:
            found.add(each.name)
            pending += each.all_input_nodes
    return found


def served(converted: Converted, feeds: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return a contract's inputs as the program takes them."""
    types = {feature.name: feature.dtype for feature in converted.program.inputs}
    return {
        name: as_served(tensor.numpy(), types[name])
        for name, tensor in feeds.items()
        if name in types
    }


class _Recorder(ProgramRun):
    """Runs torch.export's program and records each node's result by name."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[tuple[int, str], torch.Tensor] = {}
        self.whole: dict[str, torch.Tensor] = {}
        self.handles: dict[str, int] = {}

    def run_node(self, n: torch.fx.Node) -> Any:  # noqa: ANN401 - whatever a node computes
        result = super().run_node(n)
        handle = n.meta.get("debug_handle")
        if handle is not None and n.op == "call_function" and isinstance(result, torch.Tensor):
            if result.is_floating_point():
                self.values[handle, n.name] = result
            elif result.dtype == torch.int64:
                self.whole[n.name] = result
                self.handles[n.name] = handle
        return result


class _Comparison(Watcher):
    """Compares each tensor with its source node's, and continues with the latter's values, so that
    every difference is new at its place. `names` are the nodes of tensors that have other names.
    """

    def __init__(
        self,
        values: Mapping[tuple[int, str], torch.Tensor],
        origins: Mapping[int, OperationOrigin],
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._values = values
        self._origins = origins
        self._names = names or {}
        self._matched: set[tuple[int, str]] = set()
        self._last: dict[int, tuple[Any, str, torch.Size]] = {}
        self.partings: list[ProgramParting] = []
        self.originals: dict[str, torch.Tensor] = {}

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del computed
        handle = debug_handle(step.source)
        if handle is None:
            return stored
        key = (handle, self._names.get(result.name, result.name))
        self._last[handle] = (step.source, result.name, stored.shape)
        original = self._values.get(key)
        if original is None or original.shape != stored.shape:
            return stored
        self._matched.add(key)
        error, found, wanted = _apart(stored, original)
        self.originals[result.name] = original
        if not error <= _SAME:
            origin = self._origins[handle]
            self.partings.append(
                ProgramParting(origin, step.operation, result.name, error, found, wanted)
            )
        return original.to(stored.dtype)

    def unnamed(self) -> dict[str, str]:
        """Return nodes that no tensor is named after, by the tensor that may be their result: that
        of their last operation, if only other nodes' operations read it.
        """
        found = {}
        for handle, name in self._values.keys() - self._matched:
            source, tensor, shape = self._last.get(handle, (None, "", None))
            if source is None or shape != self._values[handle, name].shape:
                continue
            readers = [reader for out in source.outputs for reader in out.child_ops]
            if readers and all(debug_handle(reader) != handle for reader in readers):
                found[tensor] = name
        return found


class _Put(Watcher):
    """Replaces some tensors by the original's values, by name."""

    def __init__(self, values: Mapping[str, torch.Tensor]) -> None:
        self._values = values

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del step, computed
        original = self._values.get(result.name)
        return stored if original is None else original.to(stored.dtype)


def outputs_error(found: Tensors, expected: Tensors) -> float:
    """Return the largest error of the outputs; infinite for a missing or misshapen one."""
    errors = [
        _apart(torch.from_numpy(found[name]), torch.from_numpy(np.array(values)))[0]
        if name in found and found[name].shape == values.shape
        else math.inf
        for name, values in expected.items()
    ]
    return max(errors, default=math.inf)


def _apart(found: torch.Tensor, original: torch.Tensor) -> tuple[float, float, float]:
    """Return the largest error relative to the original's RMS, and the two values there.

    NaN and infinities are equal if both sides have them, otherwise an infinite error.
    """
    if not original.numel():
        return 0.0, 0.0, 0.0
    one, other = found.double().reshape(-1), original.double().reshape(-1)
    same = (one == other) | (one.isnan() & other.isnan())
    error = torch.where(same, 0.0, (one - other).abs())
    error = torch.where(error.isnan(), math.inf, error)
    finite = other[other.isfinite()]
    rms = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    place = int(error.argmax())
    return float(error[place]) / (rms or 1.0), float(one[place]), float(other[place])

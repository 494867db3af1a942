"""Simulates a graph with origins of NaN and infinity put right: do they spoil its outputs?"""

import dataclasses
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.json_codec import Json
from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.graph_traversal import add_constant, all_names, free_name
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.precision.diagnosis.guilty_origins import (
    HARMLESS,
    WrongValueOrigin,
    guilty,
    lessening,
)
from convkit.worker.precision.diagnosis.overflow_origins import RootCauses, moved_from
from convkit.worker.precision.diagnosis.rounding_growth import TensorError
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import Assignment, TypeChoice
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.tensor_statistics import open_session

Feeds = Mapping[str, np.ndarray]

_NOT_FINITE = ("IsNaN", "IsInf")


def proven(causes: RootCauses, count: Callable[[Collection[WrongValueOrigin]], int]) -> RootCauses:
    """Return the constants and tensors that spoil outputs, with their guilt; all of them, without
    any, if that cannot be shown.
    """
    constants = [WrongValueOrigin(scan.constant, is_constant=True) for scan in causes.constants]
    tensors = [
        WrongValueOrigin(bad.begins, is_constant=False, together=bad.together)
        for bad in causes.tensors
    ]
    found = guilty([*constants, *tensors], count)
    if not found:
        return causes
    return dataclasses.replace(
        causes,
        constants=tuple(scan for scan in causes.constants if scan.constant in found),
        tensors=tuple(bad for bad in causes.tensors if bad.begins in found),
        guilt=found,
    )


def keeping(model: ir.Model, assignment: Assignment, modules: Collection[str]) -> Assignment:
    """Return an assignment in which the nodes of these modules compute in float32."""
    paths = dict(nodes_with_modules(model))
    made = (node for node in assignment.choices if paths.get(node) in modules)
    return _in_float32(assignment, {value.name or "" for node in made for value in node.outputs})


def _in_float32(assignment: Assignment, results: Collection[str]) -> Assignment:
    """Return an assignment in which the nodes with these results compute in float32."""
    choices = {
        node: (
            TypeChoice("float32", "kept")
            if any(value.name in results for value in node.outputs)
            else choice
        )
        for node, choice in assignment.choices.items()
    }
    return dataclasses.replace(assignment, choices=choices)


def helps(
    model: ir.Model, before: Sequence[TensorError], after: Sequence[TensorError]
) -> dict[str, Json]:
    """Return the evidence on whether a change takes away most of the outputs' relative error."""
    outputs = {moved_from(value).name for value in model.graph.outputs}
    first, second = (
        max((each.relative_error for each in errors if each.tensor in outputs), default=0.0)
        for errors in (before, after)
    )
    return lessening(first, second)


class Interventions:
    """Simulates one case with origins put right. `model` and `assignment` are as in `convert`;
    `saturate` is the precision's own.
    """

    def __init__(
        self,
        model: ir.Model,
        assignment: Assignment,
        feeds: Feeds,
        *,
        saturate: bool,
        threads: int | None,
    ) -> None:
        self._model, self._assignment = model, assignment
        self._feeds, self._threads = feeds, threads
        self._saturate = saturate
        self._float32: dict[str, np.ndarray] = {}

    def count(self, corrected: Collection[WrongValueOrigin]) -> int:
        """Return how many elements of the outputs are not finite with these origins put right."""
        constants = [each.name for each in corrected if each.is_constant]
        results = [each.name for each in corrected if not (each.is_constant or each.together)]
        saturate: bool | Collection[str] = True if self._saturate else constants
        together = {name for each in corrected for name in each.together}
        assignment = _in_float32(self._assignment, together)
        simulated = simulate(convert(self._model, assignment, saturate=saturate).model)
        values = {value.name or "": value for node in simulated.graph for value in node.outputs}
        taken = all_names(simulated)
        for name in results:
            _put_right(simulated, values[name], self._harmless(name), taken)
        names = [value.name or "" for value in simulated.graph.outputs]
        found = [np.asarray(each) for each in self._run(simulated, names)]
        return sum(int((~np.isfinite(each)).sum()) for each in found if each.dtype.kind == "f")

    def _harmless(self, name: str) -> np.ndarray:
        """Return float32's values of a result, scaled down if they are large."""
        if name not in self._float32:
            model = self._model.clone()
            values = {value.name: value for node in model.graph for value in node.outputs}
            model.graph.outputs.clear()
            model.graph.outputs.append(values[name])
            (found,) = self._run(model, [name])
            finite = np.nan_to_num(np.asarray(found, np.float32), posinf=0.0, neginf=0.0)
            largest = float(np.abs(finite).max(initial=0.0))
            self._float32[name] = finite * np.float32(min(1.0, HARMLESS / max(largest, 1e-30)))
        return self._float32[name]

    def _run(self, model: ir.Model, names: Sequence[str]) -> list[np.ndarray]:
        with tempfile.TemporaryDirectory(prefix="convkit-") as folder:
            path = Path(folder) / "corrected.onnx"
            save_model(model, path)
            session = open_session(path, None, self._threads)
            return list(run_outputs(session, list(names), self._feeds))


def _put_right(
    model: ir.Model, value: ir.Value, harmless: np.ndarray, taken: set[str | None]
) -> None:
    """Replace the elements of a value that are not finite, for all that reads it."""
    node, name = value.producer(), value.name or ""
    assert node is not None
    stored = add_constant(model.graph, free_name(f"{name}.harmless", taken), harmless)
    nan, infinite = (ir.Node("", operator, [value], num_outputs=1) for operator in _NOT_FINITE)
    either = ir.Node("", "Or", [nan.outputs[0], infinite.outputs[0]], num_outputs=1)
    right = ir.Node("", "Where", [either.outputs[0], stored, value], num_outputs=1)
    right.outputs[0].type, right.outputs[0].shape = value.type, value.shape
    ir.convenience.replace_all_uses_with(value, right.outputs[0], replace_graph_outputs=True)
    for made in (nan, infinite, either, right):
        for result in made.outputs:
            result.name = free_name(f"{name}.{made.op_type}", taken)
    for reader in (nan, infinite):
        reader.replace_input_with(0, value)
    right.replace_input_with(2, value)
    model.graph.insert_after(node, [nan, infinite, either, right])

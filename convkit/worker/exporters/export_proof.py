"""Proves a freshly exported graph: compares it with the original at several sizes."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.cases.decision_sizes import Decisions, turns
from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.graph.standard_evaluator import standard_evaluator
from convkit.worker.metrics.row_sets import align_rows
from convkit.worker.original.example_sizes import other_sizes
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.runtime_interface.registered_operators import register_libraries

# Relative to the outputs' largest magnitude: above the differences between float32 kernels, far
# below those of a wrong branch.
_SAME = 1e-3
# How many sizes on either side of the model's size decisions are compared, in addition to those
# always compared.
_MOST_COMPARED = 8
# Sizes of each axis that are compared from its smallest on: as many as the ladder's batches.
_FIRST_SIZES = 4


@dataclasses.dataclass(frozen=True)
class Proof:
    """A graph matches the original: `sizes` that were compared, and the largest error relative to
    the outputs' largest magnitude.
    """

    sizes: tuple[dict[str, int], ...]
    error: float


def prove(job: ExportJob, graph: Path, decisions: Decisions) -> Proof | str:
    """Compare a graph, whose outputs have the contract's names, with the original.

    Returns why it is not proof unless they agree at every size, including both sides of the model's
    decisions.
    """
    try:
        runner = _Runner(graph)
    except Exception as failure:  # noqa: BLE001 - onnxruntime's exceptions share no base class
        return f"its graph does not load: {failure}"
    compared, largest = [], 0.0
    for sizes in _sizes(job, decisions):
        error = _error(job, runner, sizes)
        if not error <= _SAME:
            where = ", ".join(f"{name}={size}" for name, size in sizes.items()) or "its fixed sizes"
            if math.isnan(error):
                return f"its graph does not run at {where}"
            return f"its graph differs from the original at {where} (relative error {error:.1e})"
        compared.append(sizes)
        largest = max(largest, error)
    return Proof(tuple(compared), largest)


def _sizes(job: ExportJob, decisions: Decisions) -> Iterator[dict[str, int]]:
    """Yield different sizes, small ones first: the traced ones, others, the typical ones, each axis
    alone at its maximum and at its first few sizes, and both sides of the model's size decisions.

    A decision about `int(x.shape[0])` is not found; that it concerns a small size is likely.
    """
    contract, example = job.contract, job.probe.sizes
    sides = [
        side
        for decision in decisions.sizes
        for turn in turns(decision, contract, example)
        for side in (turn.below, turn.above)
    ]
    choices = [example, other_sizes(contract, example), smallest_sizes(contract)]
    choices.append(contract.typical_sizes())
    choices += [{**example, axis.name: axis.max} for axis in contract.axes]
    choices += [
        {**example, axis.name: size}
        for axis in contract.axes
        for size in range(axis.min, min(axis.min + _FIRST_SIZES, axis.max + 1))
    ]
    choices += sides[:_MOST_COMPARED]
    distinct = {tuple(sizes.items()): sizes for sizes in choices if sizes is not None}
    yield from distinct.values()


def _error(job: ExportJob, runner: "_Runner", sizes: dict[str, int]) -> float:
    """Return the largest error relative to its output's magnitude; NaN if one does not run."""
    inputs = job.examples.draw(sizes, turn=1)
    names = [spec.name for spec in job.contract.outputs]
    feeds = {
        spec.name: to_array(tensor)
        for spec, tensor in zip(job.contract.inputs, inputs, strict=True)
    }
    try:
        with torch.no_grad():
            outputs = job.module(*inputs)
        found = runner.run(names, feeds)
    except Exception:  # noqa: BLE001 - a model and two runtimes may raise anything: no proof
        return math.nan
    expected = {name: to_array(each) for name, each in zip(names, outputs, strict=True)}
    first, second = align_rows(job.contract, expected, found)
    errors = [_relative(first[name], second[name]) for name in names]
    return float(np.max(errors, initial=0.0))  # NaN wins


def _relative(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest error of one output, in parts of its largest magnitude."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return math.inf
    one, other = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity: no proof
        error = float(np.abs(one - other).max(initial=0.0))
    return error / (float(np.abs(one).max(initial=0.0)) or 1.0)


class _Runner:
    """A graph, run by onnxruntime if installed, otherwise by ONNX's reference evaluator."""

    def __init__(self, path: Path) -> None:
        self._session: Any
        try:
            import onnxruntime
        except ImportError:
            self._session = standard_evaluator(onnx.load(path))
            self._inputs = set(self._session.input_names)
        else:
            settings = onnxruntime.SessionOptions()
            register_libraries(settings)
            self._session = onnxruntime.InferenceSession(
                str(path), settings, providers=["CPUExecutionProvider"]
            )
            self._inputs = {value.name for value in self._session.get_inputs()}

    def run(self, names: list[str], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return outputs by name; inputs that the exporter dropped are left out."""
        given = {name: values for name, values in feeds.items() if name in self._inputs}
        return dict(zip(names, self._session.run(names, given), strict=True))

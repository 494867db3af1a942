"""Determines, if torch's exporter fails, whether TorchScript's works, by exporting and comparing.

torch.export unrolls recurrent layers over the example's steps and rejects a model whose axis it had
to fix; TorchScript's exporter translates them directly.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from convkit.cases.decisions import Decisions, Turn, turns
from convkit.cases.sizes import smallest_sizes
from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.row_sets import align_rows
from convkit.models.exporters import torchscript
from convkit.models.exporters.dynamic_trace import recurrent_modules
from convkit.models.exporters.job import Job
from convkit.models.sources.decisions import find_decisions
from convkit.models.sources.example_sizes import other_sizes
from convkit.models.sources.torch_dtypes import to_array
from convkit.worker.context import StageFailedError

# Relative to the outputs' largest magnitude: above the differences between float32 kernels, far
# below those of a wrong branch.
_SAME = 1e-3
# How many sizes on either side of the model's size decisions are compared, in addition to those
# always compared.
_MOST_COMPARED = 8


@dataclasses.dataclass(frozen=True)
class Proof:
    """TorchScript's exporter works: `sizes` that were compared, and the largest error relative to
    the outputs' largest magnitude.
    """

    sizes: tuple[dict[str, int], ...]
    error: float


def prove_torchscript(job: Job, decisions: Decisions) -> Proof | None:
    """Export with TorchScript and compare with the original; None unless they agree at every
    compared size, including both sides of the model's decisions.
    """
    folder = job.scratch / "alternative"
    folder.mkdir()
    try:
        torchscript.export(dataclasses.replace(job, scratch=folder))
        runner = _Runner(folder / "first" / "model.onnx")
    except StageFailedError:
        return None
    compared, largest = [], 0.0
    for sizes in _sizes(job, decisions):
        error = _error(job, runner, sizes)
        if not error <= _SAME:
            return None
        compared.append(sizes)
        largest = max(largest, error)
    return Proof(tuple(compared), largest)


def _sizes(job: Job, decisions: Decisions) -> Iterator[dict[str, int]]:
    """Yield different sizes, small ones first: the traced ones, others, each axis alone at its
    maximum, and both sides of the model's size decisions.
    """
    contract, example = job.contract, job.probe.sizes
    sides = [
        side
        for decision in decisions.sizes
        for turn in turns(decision, contract, example)
        for side in (turn.below, turn.above)
    ]
    choices = [example, other_sizes(contract, example), smallest_sizes(contract)]
    choices += [{**example, axis.name: axis.max} for axis in contract.axes]
    choices += sides[:_MOST_COMPARED]
    distinct = {tuple(sizes.items()): sizes for sizes in choices if sizes is not None}
    yield from distinct.values()


def _error(job: Job, runner: "_Runner", sizes: dict[str, int]) -> float:
    """Return the largest error relative to its output's magnitude; NaN if one does not run."""
    inputs = job.examples.draw(sizes, turn=1)
    names = [spec.name for spec in job.contract.outputs]
    feeds = {
        spec.name: to_array(tensor)
        for spec, tensor in zip(job.contract.inputs, inputs, strict=True)
    }
    try:
        with torch.inference_mode():
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
            from onnx.reference import ReferenceEvaluator

            self._session = ReferenceEvaluator(onnx.load(path))
            self._inputs = set(self._session.input_names)
        else:
            self._session = onnxruntime.InferenceSession(
                str(path), providers=["CPUExecutionProvider"]
            )
            self._inputs = {value.name for value in self._session.get_inputs()}

    def run(self, names: list[str], feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return outputs by name; inputs that the exporter dropped are left out."""
        given = {name: values for name, values in feeds.items() if name in self._inputs}
        return dict(zip(names, self._session.run(names, given), strict=True))


def with_alternative(job: Job, findings: Sequence[Finding], error: str) -> list[Finding]:
    """Return the findings after torch's exporter failed: E301 if TorchScript's was seen to work.

    Otherwise, the original findings, with the responsible recurrent layer or line.
    """
    root = job.loaded.source_root
    decisions, numbers = find_decisions(
        job.module, job.examples.draw, job.contract, job.probe.sizes, root
    )
    recurrent = recurrent_modules(job.loaded.module)
    proof = prove_torchscript(job, decisions)
    if proof is not None:
        return [_use_torchscript(findings, error, recurrent, proof)]
    deciding = [
        turn
        for decision in decisions.sizes
        for turn in turns(decision, job.contract, job.probe.sizes)
    ]
    return [
        _fixed(finding, numbers) if finding.code == "C106" else _restricted(finding, deciding)
        for finding in findings
    ]


def _use_torchscript(
    findings: Sequence[Finding], error: str, recurrent: Mapping[str, str], proof: Proof
) -> Finding:
    layers = [f"nn.{kind} {name!r}" if name else f"nn.{kind}" for name, kind in recurrent.items()]
    axes = [str(finding.evidence["axis"]) for finding in findings if "axis" in finding.evidence]
    if layers and axes:
        what = f"keep axis {axes[0]!r} variable: it unrolls {', '.join(layers[:3])} step by step"
    else:
        what = f"export this model ({error.splitlines()[0]})"
    return Finding(
        "E301",
        f"torch's exporter cannot {what}. TorchScript's exporter can: its graph matches the"
        f" original at {len(proof.sizes)} sizes (largest relative error {proof.error:.1e})",
        Place(tensor=axes[0] if axes else None, module=next(iter(recurrent), None)),
        {
            "compared": [dict(sizes) for sizes in proof.sizes],
            "error": proof.error,
            "recurrent": dict(recurrent),
        },
        Remedy("Export with exporter: torchscript.", {"export.exporter": "torchscript"}),
    )


def _fixed(finding: Finding, numbers: Sequence[str]) -> Finding:
    """Name the line that fixes an axis, where one turns a size into a plain number."""
    if not numbers:
        return finding
    axis, size = finding.evidence["axis"], finding.evidence["fixed"]
    return Finding(
        finding.code,
        f"The model's own code fixes axis {axis!r} at {size}, the example's size: a size becomes a"
        f" plain number at {numbers[0]}.",
        Place(tensor=finding.place.tensor, source=numbers[0]),
        {**finding.evidence, "lines": list(numbers)},
        Remedy(
            "Compute shapes in the model from tensor.shape[i], without int() or literal sizes, so"
            f" that {axis!r} can vary."
        ),
    )


def _restricted(finding: Finding, deciding: Sequence[Turn]) -> Finding:
    """Name the branch on a size that restricts an axis."""
    turn = next((turn for turn in deciding if finding.place.tensor in (None, turn.axis)), None)
    if finding.code != "C113" or turn is None:
        return finding
    sides = turn.below[turn.axis], turn.above[turn.axis]
    text = finding.remedy.text if finding.remedy is not None else ""
    change = finding.remedy.change if finding.remedy is not None else {}
    return dataclasses.replace(
        finding,
        message=f"{finding.message} The branch at {turn.place} changes between {turn.axis}"
        f" {sides[0]} and {sides[1]}.",
        place=dataclasses.replace(finding.place, source=turn.place),
        evidence={**finding.evidence, "branch": turn.place, "sides": list(sides)},
        remedy=Remedy(f"Write the branch at {turn.place} with torch.cond. Or: {text}", change),
    )

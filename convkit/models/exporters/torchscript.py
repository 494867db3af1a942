"""torch's older exporter: runs the model on examples; what does not pass through tensors becomes a
constant.
"""

import warnings
from pathlib import Path

import onnx_ir
import torch

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.exporters.dynamic_trace import innermost
from convkit.models.exporters.job import Job, UnexportableError
from convkit.models.exporters.traces import Difference, first_difference
from convkit.models.graph.contract import load_graph
from convkit.models.sources.example_sizes import other_sizes
from convkit.tensors import Contract, dimension_axes
from convkit.worker.context import StageFailedError


def export(job: Job) -> onnx_ir.Model:
    """Trace at the probe's sizes, and again at others: a graph that changes with the sizes has one
    of them baked in.

    Raises UnexportableError with C106 for that, naming the axis where the constant shows it, and
    the module.
    """
    first = _trace(job, job.probe.inputs, job.scratch / "first")
    sizes = other_sizes(job.contract, job.probe.sizes)
    if sizes is not None:
        second = _trace(job, job.examples.draw(sizes), job.scratch / "second")
        difference = first_difference(first, second)
        if difference is not None:
            raise UnexportableError([_baked_in(difference, job.probe.sizes, sizes)])
    return first


def _trace(job: Job, inputs: tuple[torch.Tensor, ...], folder: Path) -> onnx_ir.Model:
    folder.mkdir()
    file = folder / "model.onnx"
    try:
        with warnings.catch_warnings():
            # Deprecations of torch's own, and guesses about constants: the second trace settles
            # what they are.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                job.module,
                inputs,
                file,
                dynamo=False,
                opset_version=job.opset,
                input_names=[spec.name for spec in job.contract.inputs],
                output_names=[spec.name for spec in job.contract.outputs],
                dynamic_axes=_dynamic_axes(job.contract),
            )
    except Exception as error:
        raise StageFailedError(
            f"export: torch's TorchScript exporter failed: {innermost(error)}"
        ) from error
    return load_graph(file)


def _dynamic_axes(contract: Contract) -> dict[str, dict[int, str]]:
    """Return names for the inputs' axes only: what it says of outputs, the exporter would believe."""
    varying = {axis.name for axis in contract.axes if axis.min < axis.max}
    return {
        spec.name: {
            index: text
            for index, text in enumerate(spec.shape)
            if isinstance(text, str) and not varying.isdisjoint(dimension_axes(text))
        }
        for spec in contract.inputs
    }


def _baked_in(difference: Difference, sizes: dict[str, int], others: dict[str, int]) -> Finding:
    pairs = set(zip(difference.first, difference.second, strict=False))
    axes = [name for name, size in sizes.items() if (size, others[name]) in pairs]
    what = (
        f"The axis {axes[0]!r} is" if axes else "Something that depends on the example's sizes is"
    )
    where = f" in {difference.module}" if difference.module else ""
    return Finding(
        "C106",
        f"{what} fixed in the graph{where}: traced at {_text(sizes)} and at {_text(others)}, the"
        f" model gives two graphs, which first differ at {difference.what}.",
        Place(
            tensor=axes[0] if axes else None, node=difference.node, module=difference.module or None
        ),
        {
            "axes": axes,
            "first": list(difference.first)[:16],
            "second": list(difference.second)[:16],
        },
        Remedy(
            "Write shapes in the model with tensor.shape[i], without int() and numbers, or export"
            " with the exporter torch, which follows sizes through Python.",
            {"export.exporter": "torch"},
        ),
    )


def _text(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())

"""torch's older exporter: runs the model on examples; values that do not pass through tensors
become constants.
"""

import warnings
from pathlib import Path

import onnx_ir
import torch

from convkit.protocol.contract import Contract, dimension_axes
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.exporters import dynamic_trace
from convkit.worker.exporters.dynamic_trace import innermost
from convkit.worker.exporters.export_job import ExportJob, UnexportableError
from convkit.worker.exporters.packed_states import explicit_states
from convkit.worker.exporters.trace_comparison import (
    TraceDifference,
    first_difference,
    open_inferred_sizes,
)
from convkit.worker.exporters.traceable_layers import attention_in_parts, traceable_experts
from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.example_sizes import other_sizes
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.loading.archive_as_module import ScriptArchive
from convkit.worker.original.probing.conversion_obstacles import other_values
from convkit.worker.original.probing.nondeterminism import unsteady_finding
from convkit.worker.original.probing.torch_comparisons import find_decisions
from convkit.worker.original.probing.value_branches import value_dependent_lines


def export(job: ExportJob) -> onnx_ir.Model:
    """Trace at the probe's sizes, and again at others with other values: a graph that changes has
    a size or a value baked in.

    It then raises UnexportableError: with E305 and the line if values are the reason, otherwise
    with C106, naming the module and, if the constant reveals it, the axis.
    """
    first = _trace(job, job.probe.inputs, job.scratch / "first")
    sizes = other_sizes(job.contract, job.probe.sizes)
    if sizes is not None:
        # Of other values, too: those of one turn begin alike at every size.
        second = _trace(job, job.examples.draw(sizes, turn=1), job.scratch / "second")
        difference = first_difference(first, second)
        if difference is not None:
            raise UnexportableError([_explained(difference, job, first, sizes)])
        open_inferred_sizes(first, second)
    return first


def _explained(
    difference: TraceDifference, job: ExportJob, first: onnx_ir.Model, sizes: dict[str, int]
) -> Finding:
    """Return N303 for a model that is not the same twice, E305 for a graph that changes with
    values, otherwise C106.
    """
    unsteady = unsteady_finding(job.module, job.probe.inputs, job.loaded.source_root)
    if unsteady is not None:
        return unsteady
    lines = value_dependent_lines(job.module, job.probe.inputs, job.loaded.source_root)
    by_data = _decides_by_data(job, first, lines)
    return by_data or _baked_in(difference, job, first, sizes, lines)


def _decides_by_data(
    job: ExportJob, first: onnx_ir.Model, lines: tuple[str, ...]
) -> Finding | None:
    """Return E305 if other values of the same sizes give another graph, too: then no axis is to
    blame.
    """
    for turn, inputs in enumerate(other_values(job.examples, job.probe) if lines else ()):
        try:
            other = _trace(job, inputs, job.scratch / f"values-{turn}")
        except StageFailedError:  # the model refuses these values
            continue
        difference = first_difference(first, other)
        if difference is not None:
            return Finding(
                "E305",
                f"the graph depends on the values that it is traced with, by {lines[0]}: tracing at"
                f" {_text(job.probe.sizes)} with other values gives a different graph, which first"
                f" differs at {difference.what}",
                Place(node=difference.node, module=difference.module or None, source=lines[0]),
                {"lines": list(lines)},
                Remedy(
                    "Keep values in tensors, without int(), float(), bool(), .item() or numpy, and"
                    " write both sides of a branch with torch.where or torch.cond. Not tried."
                ),
            )
    return None


def _trace(job: ExportJob, inputs: tuple[torch.Tensor, ...], folder: Path) -> onnx_ir.Model:
    folder.mkdir()
    file = folder / "model.onnx"
    module: torch.nn.Module = job.module
    names = [spec.name for spec in job.contract.inputs]
    if isinstance(job.loaded.module, ScriptArchive):
        # It is not traced: the exporter reads the archive's code, with its branches and loops.
        module = job.loaded.module.archive
        names, inputs = _by_position(job, inputs)
    try:
        with (
            warnings.catch_warnings(),
            attention_in_parts(),
            explicit_states(module),
            traceable_experts(module),
        ):
            # torch's own deprecations, and guesses about constants: the second trace settles those.
            warnings.simplefilter("ignore")
            if module is job.module and _has_scripted_parts(module):
                module = torch.jit.trace(module, inputs, check_trace=False)
            torch.onnx.export(
                module,
                inputs,
                file,
                dynamo=False,
                opset_version=job.opset,
                input_names=names,
                output_names=[spec.name for spec in job.contract.outputs],
                dynamic_axes=_dynamic_axes(job.contract),
            )
    except Exception as error:
        raise StageFailedError(
            f"export: torch's TorchScript exporter failed: {innermost(error)}"
        ) from error
    return load_graph(file)


def _has_scripted_parts(module: torch.nn.Module) -> bool:
    """Return True if the exporter cannot trace a module by itself: it refuses to call TorchScript,
    which torch.jit.trace takes over as it is.
    """
    return any(isinstance(each, torch.jit.ScriptModule) for each in module.modules())


def _by_position(
    job: ExportJob, inputs: tuple[torch.Tensor, ...]
) -> tuple[list[str], tuple[torch.Tensor, ...]]:
    """Return the inputs' names and values in the order of the archive's parameters."""
    parameters = list(forward_parameters(job.loaded))
    declared = zip(job.contract.inputs, inputs, strict=True)
    given = {spec.origin or spec.name: (spec.name, tensor) for spec, tensor in declared}
    places = [name for name in parameters if name in given]
    if len(places) != len(given) or places != parameters[: len(places)]:
        raise StageFailedError(
            "export: the TorchScript exporter passes inputs by position: declare the archive's"
            f" parameters from the first on, as one tensor each ({', '.join(parameters)})"
        )
    pairs = [given[name] for name in places]
    return [name for name, _ in pairs], tuple(tensor for _, tensor in pairs)


def _dynamic_axes(contract: Contract) -> dict[str, dict[int, str]]:
    """Return names for the inputs' axes only: the exporter would not verify any for outputs."""
    varying = {axis.name for axis in contract.axes if axis.min < axis.max}
    return {
        spec.name: {
            index: text
            for index, text in enumerate(spec.shape)
            if isinstance(text, str) and not varying.isdisjoint(dimension_axes(text))
        }
        for spec in contract.inputs
    }


def _baked_in(
    difference: TraceDifference,
    job: ExportJob,
    first: onnx_ir.Model,
    others: dict[str, int],
    lines: tuple[str, ...],
) -> Finding:
    """Return C106, with the axes that give another graph when each of them alone changes, and the
    line of the model's code.
    """
    sizes = job.probe.sizes
    axes = [axis for axis in others if _matters(axis, job, first, others)]
    # One of several lines that read values need not be to blame.
    line = _fixing_line(job, axes) or (lines[0] if len(lines) == 1 else None)
    what = f"Axis {axes[0]!r} is" if axes else "Something that depends on the example's sizes is"
    where = f" in {difference.module}" if difference.module else ""
    how = f" A size becomes a plain number at {line}." if line is not None else ""
    return Finding(
        "C106",
        f"{what} fixed in the graph{where}: tracing at {_text(sizes)} and at {_text(others)} gives"
        f" different graphs, which first differ at {difference.what}.{how}",
        Place(
            tensor=axes[0] if axes else None,
            node=difference.node,
            module=difference.module or None,
            source=line,
        ),
        {
            "axes": axes,
            "first": list(difference.first)[:16],
            "second": list(difference.second)[:16],
        },
        Remedy(
            "Compute shapes in the model from tensor.shape[i], without int() or literal sizes, or"
            " export with exporter: torch, which tracks sizes through Python code.",
            {"export.exporter": "torch"},
        ),
    )


def _matters(axis: str, job: ExportJob, first: onnx_ir.Model, others: dict[str, int]) -> bool:
    """Return True if another size of one axis alone gives another graph."""
    sizes = {**job.probe.sizes, axis: others[axis]}
    if sizes == job.probe.sizes:
        return False
    try:
        other = _trace(job, job.examples.draw(sizes), job.scratch / f"axis-{axis}")
    except StageFailedError:  # the model refuses these sizes
        return False
    return first_difference(first, other) is not None


def _fixing_line(job: ExportJob, axes: list[str]) -> str | None:
    """Return the line of the model's code that makes a size of an axis a plain number, as
    torch.export tells it, or a run with sizes that are followed.
    """
    root = job.loaded.source_root
    try:
        dynamic_trace.trace(job.module, job.probe.inputs, job.contract, root)
    except UnexportableError as refused:
        for finding in refused.findings:
            if finding.place.source and finding.place.tensor in axes:
                return finding.place.source
    except StageFailedError:
        pass
    _, numbers = find_decisions(job.module, job.examples.draw, job.contract, job.probe.sizes, root)
    fitting = (line for line, own in numbers.items() if not axes or own.intersection(axes))
    return next(fitting, None)


def _text(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())

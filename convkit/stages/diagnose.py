"""Searches for the cause of a difference between the original and the exported graph, on one
case.
"""

import math
from pathlib import Path

import torch

from convkit.cases.files import read_tensors
from convkit.findings.model import Finding
from convkit.localize.branches import other_side
from convkit.localize.findings import findings_of
from convkit.localize.frozen import kept_values
from convkit.localize.graph import PieceFailedError, read_graph
from convkit.localize.recording import record
from convkit.localize.search import localize
from convkit.models.exporters.job import WRAPPER
from convkit.models.graph.files import MODEL_FILE
from convkit.models.sources import load_model
from convkit.models.sources.contract_module import ContractModule
from convkit.models.sources.loaded import LoadedModel
from convkit.models.sources.probe import Examples, probe
from convkit.models.sources.torch_dtypes import to_array, to_tensor
from convkit.worker.context import Context, StageSkippedError
from convkit.worker.protocol import DiagnoseRequest, DiagnoseResult


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Record the original's operations on a case and search the graph for differences.

    Raises StageSkippedError if the original is not a torch module, because its operations cannot be
    recorded.
    """
    if request.source.kind == "onnx":
        raise StageSkippedError("the original is an ONNX file, whose operations are not recorded")
    if request.exported is None:
        raise StageSkippedError("there is no exported graph to search")
    context.progress("loading the original model", done=0.0)
    loaded = load_model(request.source)
    module = ContractModule(loaded, request.contract, request.source.omit)
    feeds = read_tensors(Path(request.reference), request.case, "inputs", request.contract.inputs)
    inputs = {
        spec.name: to_tensor(feeds[spec.name], spec.dtype) for spec in request.contract.inputs
    }
    context.progress(f"recording the original: {request.case}", done=0.1)
    names = tuple(spec.name for spec in request.contract.outputs)
    recording = record(module, inputs, names, wrapper=WRAPPER, root=loaded.source_root)
    graph = read_graph(Path(request.exported) / MODEL_FILE)
    # In the order of modules: a norm's weights follow those of the layer before it.
    state = {
        f"{path}.{name}" if path else name: to_array(tensor)
        for path, part in loaded.module.named_modules(remove_duplicate=False)
        for tensors in (part.named_parameters, part.named_buffers)
        for name, tensor in tensors(recurse=False)
    }
    context.progress("looking for the first difference", done=0.3)
    given = {spec.name: to_array(inputs[spec.name]) for spec in request.contract.inputs}
    diagnosis = localize(recording, graph, given, state)
    result = DiagnoseResult(
        _finite(diagnosis.error), _finite(diagnosis.remaining), len(diagnosis.causes)
    )
    found = findings_of(diagnosis, request.case)
    try:
        computed = graph.run(list(names), given)
    except PieceFailedError:
        return result, found
    branch = other_side(module, inputs, names, computed, request.case, root=loaded.source_root)
    if branch is None and (example := _example(request, loaded)) is not None:
        branch = kept_values(
            module, example, inputs, names, computed, request.case, root=loaded.source_root
        )
    return result, found if branch is None else [branch, *found]


def _example(request: DiagnoseRequest, loaded: LoadedModel) -> tuple[torch.Tensor, ...] | None:
    """Return the inputs that the export was traced with; None for a file from elsewhere."""
    original = request.original
    if original is None:
        return None
    examples = Examples(request.contract, original.samples, original.seed, loaded)
    return probe(ContractModule(loaded, request.contract, request.source.omit), examples).inputs


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

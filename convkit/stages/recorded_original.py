"""The original's own run of one case, as searches compare other models with it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.cases.files import read_tensors
from convkit.localize.graph import read_graph
from convkit.localize.graph_recording import record_graph, weights_of
from convkit.localize.original import Recording
from convkit.localize.recording import record, state_of
from convkit.models.exporters.job import WRAPPER
from convkit.models.sources import load_model
from convkit.models.sources.contract_module import ContractModule
from convkit.models.sources.torch_dtypes import to_array, to_tensor
from convkit.worker.protocol import DiagnoseRequest


@dataclasses.dataclass(frozen=True)
class RecordedOriginal:
    """A recording, the weights and buffers by name, and the inputs by the contract's names."""

    recording: Recording
    state: Mapping[str, np.ndarray]
    feeds: Mapping[str, np.ndarray]


def record_original(request: DiagnoseRequest) -> RecordedOriginal:
    """Run the original on a request's case: a torch module, or an ONNX file. Its outputs have the
    contract's names.

    Raises what the original raises, and PieceFailedError.
    """
    contract = request.contract
    feeds = read_tensors(Path(request.reference), request.case, "inputs", contract.inputs)
    if request.source.kind == "onnx":
        assert request.source.path is not None
        graph = read_graph(Path(request.source.path))
        given = {spec.origin or spec.name: feeds[spec.name] for spec in contract.inputs}
        names = {spec.name: spec.origin or spec.name for spec in contract.outputs}
        return RecordedOriginal(record_graph(graph, given, names), weights_of(graph), feeds)
    loaded = load_model(request.source)
    module = ContractModule(loaded, contract, request.source.omit)
    inputs = {spec.name: to_tensor(feeds[spec.name], spec.dtype) for spec in contract.inputs}
    outputs = tuple(spec.name for spec in contract.outputs)
    recording = record(module, inputs, outputs, wrapper=WRAPPER, root=loaded.source_root)
    arrays = {name: to_array(tensor) for name, tensor in inputs.items()}
    return RecordedOriginal(recording, state_of(loaded.module), arrays)

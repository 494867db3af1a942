"""The original's own run of one case, as searches compare other models with it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import torch

from convkit.protocol.messages import DiagnoseRequest, ReproduceRequest, ViewRequest
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cause.graphs.runnable_graph import read_graph
from convkit.worker.cause.recording.graph_recording import record_graph, weights_of
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.exporters.export_job import WRAPPER
from convkit.worker.graph.rewriting.fixed_random_numbers import given_file
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import to_array, to_arrays, to_tensors


@dataclasses.dataclass(frozen=True)
class RecordedOriginal:
    """A recording, the weights and buffers by name, and the inputs by the contract's names."""

    recording: Recording
    state: Mapping[str, np.ndarray]
    feeds: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TorchCase:
    """A torch original behind its contract, and the inputs of one case by the contract's names."""

    loaded: LoadedModel
    module: ContractModule
    inputs: Mapping[str, torch.Tensor]

    @classmethod
    def of(
        cls, loaded: LoadedModel, module: ContractModule, feeds: Mapping[str, np.ndarray]
    ) -> Self:
        """Return a case with inputs in the contract's types."""
        specs = module.contract.inputs
        return cls(loaded, module, to_tensors(specs, feeds))

    @classmethod
    def load(
        cls,
        request: DiagnoseRequest | ReproduceRequest | ViewRequest,
        feeds: Mapping[str, np.ndarray],
    ) -> Self:
        """Load a request's original; raises what loading raises."""
        loaded = load_model(request.source)
        module = ContractModule(loaded, request.contract, request.source.omit)
        return cls.of(loaded, module, feeds)

    def on(self, feeds: Mapping[str, np.ndarray]) -> "TorchCase":
        """Return another case of the same original."""
        return self.of(self.loaded, self.module, feeds)

    def returned(self) -> dict[str, np.ndarray]:
        """Return the outputs of the original on copies of its inputs; raises what it raises."""
        names = tuple(spec.name for spec in self.module.contract.outputs)
        with torch.no_grad():
            return to_arrays(names, self.module(*(each.clone() for each in self.inputs.values())))

    def recorded(self) -> RecordedOriginal:
        """Run the original; raises what it raises."""
        outputs = tuple(spec.name for spec in self.module.contract.outputs)
        root = self.loaded.source_root
        recording = record(self.module, self.inputs, outputs, wrapper=WRAPPER, root=root)
        feeds = {name: to_array(tensor) for name, tensor in self.inputs.items()}
        return RecordedOriginal(recording, state_of(self.loaded.module), feeds)


def record_original(request: DiagnoseRequest) -> RecordedOriginal:
    """Run the original on a request's case: a torch module, or an ONNX file. Its outputs have the
    contract's names.

    Raises what the original raises, and PieceFailedError.
    """
    contract = request.contract
    feeds = read_tensors(Path(request.reference), request.case, "inputs", contract.inputs)
    if request.source.kind != "onnx":
        return TorchCase.load(request, feeds).recorded()
    with given_file(request.source) as path:
        graph = read_graph(path)
    given = {spec.origin or spec.name: feeds[spec.name] for spec in contract.inputs}
    names = {spec.name: spec.origin or spec.name for spec in contract.outputs}
    return RecordedOriginal(record_graph(graph, given, names), weights_of(graph), feeds)

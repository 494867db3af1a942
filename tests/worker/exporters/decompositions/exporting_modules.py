"""Torch modules behind a contract, exported as the export stage does it with torch's exporter."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch

from convkit.worker.exporters import torch_exporter
from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.graph.graph_files import save_model
from convkit.worker.original.contract_module import ContractModule


def export_graph(module: ContractModule, inputs: Sequence[torch.Tensor], folder: Path) -> Path:
    """Write a module's graph into a folder, `inputs` being of the typical sizes."""
    job = ExportJob(
        SimpleNamespace(source_root=None, model=module.model),  # type: ignore[arg-type]
        module,
        None,  # type: ignore[arg-type]
        SimpleNamespace(inputs=tuple(inputs), sizes={}),  # type: ignore[arg-type]
        20,
        None,
        folder,
    )
    path = folder / "model.onnx"
    save_model(torch_exporter.export(job), path)
    return path

"""The exporters: one module each, with `export(job) -> onnx_ir.Model`."""

from types import ModuleType

from convkit.models.exporters import auto, optimum, torch, torchscript
from convkit.worker.protocol import Exporter

REGISTRY: dict[Exporter, ModuleType] = {
    "torch": torch,
    "optimum": optimum,
    "torchscript": torchscript,
    "auto": auto,
}

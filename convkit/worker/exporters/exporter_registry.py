"""The exporters: one module each, with `export(job) -> onnx_ir.Model`."""

from types import ModuleType

from convkit.protocol.messages import Exporter
from convkit.worker.exporters import (
    automatic_exporter,
    optimum_exporter,
    torch_exporter,
    torchscript_exporter,
)

REGISTRY: dict[Exporter, ModuleType] = {
    "torch": torch_exporter,
    "optimum": optimum_exporter,
    "torchscript": torchscript_exporter,
    "auto": automatic_exporter,
}

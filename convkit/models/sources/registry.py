"""The model sources: one module per kind, each with `load(source) -> LoadedModel`."""

import dataclasses
from types import ModuleType

from convkit.models.sources import (
    config,
    exported,
    factory,
    hub,
    onnx_file,
    package,
    path,
    scripted,
)
from convkit.models.sources.loaded import LoadedModel
from convkit.models.sources.loaded_ahead import take_loaded
from convkit.models.sources.training import left_in_training
from convkit.worker.denormals import keep_denormals
from convkit.worker.protocol import Source, SourceKind

REGISTRY: dict[SourceKind, ModuleType] = {
    "hub": hub,
    "path": path,
    "package": package,
    "config": config,
    "factory": factory,
    "onnx": onnx_file,
    "torchscript": scripted,
    "exported": exported,
}


def load_model(source: Source) -> LoadedModel:
    """Load the original model; raises StageFailedError that names the recipe's key and the fix."""
    if (ready := take_loaded(source)) is not None:
        return ready
    loaded: LoadedModel = REGISTRY[source.kind].load(source)
    keep_denormals()  # the model's own code may have changed this thread's mode
    training = left_in_training(loaded.module)
    loaded.module.eval()
    loaded.module.requires_grad_(requires_grad=False)
    return dataclasses.replace(loaded, training=training) if training else loaded

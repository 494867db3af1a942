"""The model sources: one module per kind, each with `load(source) -> LoadedModel`."""

import dataclasses
from types import ModuleType

from convkit.protocol.json_codec import Json, decode
from convkit.protocol.messages import Source, SourceKind
from convkit.worker.original.loading import (
    exported_archive,
    local_folder,
    model_hub,
    onnx_file,
    python_factory,
    python_package,
    torchscript_archive,
    transformers_config,
)
from convkit.worker.original.loading.gathered_arguments import gather_rest
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.loading.training_mode import changed_by_training, left_in_training
from convkit.worker.process.denormal_mode import keep_denormals

REGISTRY: dict[SourceKind, ModuleType] = {
    "hub": model_hub,
    "path": local_folder,
    "package": python_package,
    "config": transformers_config,
    "factory": python_factory,
    "onnx": onnx_file,
    "torchscript": torchscript_archive,
    "exported": exported_archive,
}


_LOADED: list[tuple[Source, LoadedModel]] = []


def load_model(source: Source) -> LoadedModel:
    """Load the original model; raises StageFailedError that names the recipe's key and the fix."""
    if (ready := take_loaded(source)) is not None:
        return ready
    loaded: LoadedModel = REGISTRY[source.kind].load(source)
    keep_denormals()  # the model's own code may have changed this thread's mode
    gather_rest(loaded.module)
    training, changed = left_in_training(loaded.module), changed_by_training(loaded.module)
    loaded.module.eval()
    loaded.module.requires_grad_(requires_grad=False)
    return dataclasses.replace(loaded, training=training, changed_by_training=changed)


def load_ahead(source: Json) -> None:
    """Load a model for the processes that will be forked from this one; raises as `load_model`."""
    wanted = decode(Source, source)
    _LOADED.append((wanted, load_model(wanted)))


def take_loaded(source: Source) -> LoadedModel | None:
    """Return the model if it was loaded ahead. Only once: whoever loads it again may have changed
    the first one.
    """
    for place, (loaded, _) in enumerate(_LOADED):
        if loaded == source:
            return _LOADED.pop(place)[1]
    return None

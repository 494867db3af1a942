"""The head that transformers loads for a model, and a small configuration of an architecture."""

import json
from pathlib import Path
from typing import Any

from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Source
from convkit.worker.original.loading import model_hub
from convkit.worker.original.loading.transformers_tasks import (
    AUTO_CLASSES,
    DEFAULT_TASK,
    class_names,
)

_LAYERS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    *("encoder_layers", "decoder_layers", "num_decoder_layers"),
)
_FEW_LAYERS = 2


def likely_task(source: Source) -> str | None:
    """Return the task that loads the class a checkpoint was saved from, or the first that an
    architecture has; None if that is not known, or is the default.
    """
    import transformers

    if source.kind == "config":
        model_type, saved = source.identifier or "", ""
    else:
        folder = model_hub.snapshot(source) if source.kind == "hub" else Path(source.path or "")
        model_type, saved = _read(folder / "config.json")
    for task, classes in AUTO_CLASSES.items():
        for name in classes:
            names = class_names(getattr(transformers, name, None), model_type)
            if names and (not saved or saved in names):
                return task if task != DEFAULT_TASK else None
    return None


def _read(file: Path) -> tuple[str, str]:
    """Return the model_type and the class in a config.json; empty if it does not say."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        saved = (config.get("architectures") or [""])[0]
    except (OSError, ValueError, AttributeError, LookupError):
        return "", ""  # loading the model says what is wrong with it
    return str(config.get("model_type", "")), str(saved)


def small_overrides(architecture: str) -> dict[str, Json]:
    """Return overrides that leave an architecture few layers, quick to convert and as hard to get
    right.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    if architecture not in CONFIG_MAPPING:
        return {}
    return _few_layers(AutoConfig.for_model(architecture))


def _few_layers(config: Any) -> dict[str, Json]:  # noqa: ANN401 - transformers' configurations
    # An attribute may be another name for a key, which `to_dict` lists.
    listed = config.to_dict()
    found: dict[str, Json] = {
        key: _FEW_LAYERS
        for key in _LAYERS
        if "depths" not in listed  # whose length is the number of layers
        and isinstance(listed.get(key), int)
        and listed[key] > _FEW_LAYERS
    }
    for part in getattr(config, "sub_configs", {}):
        if (own := getattr(config, part, None)) is not None and (fewer := _few_layers(own)):
            found[part] = fewer
    return found

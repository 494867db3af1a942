"""The original's own processor, and the files that it is run on."""

import dataclasses
from typing import Literal

from convkit.protocol.json_codec import Json
from convkit.protocol.values.frozen_values import FrozenValue


class Processor(FrozenValue):
    """The tokenizer, image processor or feature extractor of an original.

    model: the one beside the model's weights · file: a preprocessor_config.json at `path` ·
    config: transformers' class with these `settings` · function: `name` in the Python file `path`.
    """

    kind: Literal["model", "file", "config", "function"] = "model"
    path: str | None = None
    name: str | None = None
    settings: dict[str, Json] = dataclasses.field(default_factory=dict)


class PreparedInput(FrozenValue):
    """An input that real files are prepared for, by the original's processor."""

    processor: Processor
    files: tuple[str, ...] = ()

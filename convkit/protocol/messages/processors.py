"""The original's own processor, and the files that it is run on."""

import dataclasses
from typing import Literal

from convkit.protocol.json_codec import Json


@dataclasses.dataclass(frozen=True)
class Processor:
    """The tokenizer, image processor or feature extractor of an original.

    model: the one beside the model's weights · file: a preprocessor_config.json at `path` ·
    config: transformers' class with these `settings` · function: `name` in the Python file `path`.
    """

    kind: Literal["model", "file", "config", "function"] = "model"
    path: str | None = None
    name: str | None = None
    settings: dict[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PreparedInput:
    """An input that real files are prepared for, by the original's processor."""

    processor: Processor
    files: tuple[str, ...] = ()

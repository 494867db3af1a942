"""The result of loading a model."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convkit.worker.cases.values.sampling_facts import ModelFacts

if TYPE_CHECKING:
    import torch

# transformers' configurations and tokenizers have no useful types.
Config = Any
Tokenizer = Any


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """The original model: on the CPU, in eval mode, without gradients, otherwise untouched.

    `tokenizer` loads the model's own tokenizer without network access; None if there is none.
    `processor` is the file with the settings of its image processor or feature extractor.
    `unloaded` names the weights that the checkpoint lacks, which transformers initialized randomly.
    `source_root` is the folder of the model's own Python files (a factory's), to which source lines
    are relative. `example` are the inputs of one call, by parameter, if the source has them.
    `training` are the modules that the source left in training mode ("": a trained model as a
    whole); if that is the whole model, `changed_by_training` are the kinds of layers that compute
    differently there.
    """

    module: "torch.nn.Module"
    description: str
    config: Config | None = None
    facts: ModelFacts = dataclasses.field(default_factory=lambda: ModelFacts(None, None, None))
    tokenizer: Callable[[], Tokenizer] | None = None
    unloaded: tuple[str, ...] = ()
    source_root: str | None = None
    processor: Path | None = None
    example: "Mapping[str, torch.Tensor] | None" = None
    training: tuple[str, ...] = ()
    changed_by_training: tuple[str, ...] = ()

    @property
    def of_transformers(self) -> bool:
        """Whether inputs are as the configuration says: a module of the user's own may have the
        configuration of a part.
        """
        if self.config is None:
            return False
        return type(self.module).forward.__module__.startswith("transformers")

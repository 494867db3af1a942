"""What loading a model gives."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from convkit.cases.facts import ModelFacts

if TYPE_CHECKING:
    import torch

# transformers' configurations and tokenizers have no useful types.
Config = Any
Tokenizer = Any


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """The original model: on the CPU, in eval mode, without gradients, otherwise untouched.

    `tokenizer` loads the model's own tokenizer without a network; None where there is none.
    `unloaded` names the weights that the checkpoint lacks, which transformers filled with random
    numbers. `source_root` is the folder of the model's own Python files (a factory's), against
    which source lines are written.
    """

    module: "torch.nn.Module"
    description: str
    config: Config | None = None
    facts: ModelFacts = dataclasses.field(default_factory=lambda: ModelFacts(None, None, None))
    tokenizer: Callable[[], Tokenizer] | None = None
    unloaded: tuple[str, ...] = ()
    source_root: str | None = None

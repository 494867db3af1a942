"""A model's own facts that determine which inputs are legal, and how many are tried."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """Legal ranges of a model's inputs, from its configuration; None if it does not specify them.

    `vocabulary`: token ids are below this. `pad_token`: the id that fills padding. `max_positions`:
    the longest sequence, in tokens, that the model has positions for. `weights`: how many numbers
    its weights are, which says how much it computes. `tables`: the matrices that it holds beside
    its layers' weights, (rows, width): prototypes, codebooks, anchors.
    """

    vocabulary: int | None = None
    pad_token: int | None = None
    max_positions: int | None = None
    weights: int | None = None
    tables: tuple[np.ndarray, ...] = dataclasses.field(default=(), compare=False, repr=False)

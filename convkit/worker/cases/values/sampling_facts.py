"""A model's own facts that determine which inputs are legal, and how many are tried."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """Legal ranges of a model's inputs, from its configuration; None if it does not specify them.

    `vocabulary`: token ids are below this. `pad_token`: the id that fills padding. `max_positions`:
    the longest sequence, in tokens, that the model has positions for. `weights`: how many numbers
    its weights are, which says how much it computes.
    """

    vocabulary: int | None = None
    pad_token: int | None = None
    max_positions: int | None = None
    weights: int | None = None

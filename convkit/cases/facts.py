"""What a model says about itself that decides which inputs are legal."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """Legal ranges of a model's inputs, as its configuration states them; None where it states
    nothing.

    `vocabulary`: token ids are below it. `pad_token`: the id that fills padding. `max_positions`:
    the longest sequence, in tokens, that the model has positions for.
    """

    vocabulary: int | None = None
    pad_token: int | None = None
    max_positions: int | None = None

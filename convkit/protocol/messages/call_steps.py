"""Models that are called in a loop: which outputs feed which inputs of the next call, and what was
measured.
"""

import dataclasses
from typing import Literal

from convkit.protocol.messages.measurements import CaseMetrics

# Loops are called steps, steps-padded, steps-full and steps-greedy; steps-reset is only for
# explanations: the original, fed its first state in every call.


@dataclasses.dataclass(frozen=True)
class Feed:
    """An output that becomes an input of the next call.

    `layer` and `part` are the number and the rest of what a pattern's `*` matches (`0.key`);
    None and the whole name without a number.
    """

    output: str
    input: str
    layer: int | None
    part: str


@dataclasses.dataclass(frozen=True)
class Steps:
    """How a model is called in a loop.

    Every call advances along `axis`: the first by `prefill` positions, each of the following
    `count` by `stride`. The axes in `grows` are the lengths of caches, which grow by as much.
    Without an axis, every call has new inputs of the same sizes. `full`: a further loop fills the
    caches. `mask` is the input that marks padding along the axis, `positions` are those that number
    the positions. `tokens` and `scores` are the
    input and the output of greedy generation. If a target is packaged to generate text, `generate`
    tokens are generated for its sake.
    """

    feeds: tuple[Feed, ...]
    axis: str | None
    grows: tuple[str, ...]
    prefill: int
    stride: int
    count: int
    full: bool
    mask: str | None = None
    positions: tuple[str, ...] = ()
    tokens: str | None = None
    scores: str | None = None
    generate: int = 0


@dataclasses.dataclass(frozen=True)
class GreedyRow:
    """One sequence, continued with the token of the highest score, by both models.

    `agreed` is the number of tokens up to the first one that differs, of `generated`. There, the
    original chose `expected` and the built model `found`; `margin` is the original's score of its
    own choice minus its score of the other. None if all tokens agree.
    """

    row: int
    agreed: int
    generated: int
    expected: int | None = None
    found: int | None = None
    margin: float | None = None

    @property
    def continuation(self) -> str:
        """What the built model chose, in words."""
        return "nothing" if self.found is None else f"token {self.found}"


# layers, parts: the tensors of two layers, or two of one layer, were swapped · positions: they
# are off by one from the second call on · stale: an output lacks what the call added · updated: an
# output is wrong in another way · reset: every call starts from the first state
TrialKind = Literal["layers", "parts", "positions", "stale", "updated", "reset"]


@dataclasses.dataclass(frozen=True)
class StepTrial:
    """The loop with one thing corrected, as proof of a cause: `cases` measure it like the loop.

    `tensors` are the tensors that were corrected, `step` the call in which the error appears (0 is
    the first), `shift` by how much positions were corrected.
    """

    kind: TrialKind
    tensors: tuple[str, ...]
    step: int
    cases: tuple[CaseMetrics, ...]
    shift: int = 0


def call_name(loop: str, number: int) -> str:
    """Return the name of a loop's call: `steps:prefill`, then `steps:1`, `steps:2`, ..."""
    return f"{loop}:{number or 'prefill'}"


def is_step(case: str) -> bool:
    """Say whether a case is a call of a loop; cases of the ladder stand alone."""
    return case.partition(":")[0].partition("-")[0] == "steps"

"""The results of a search: causes with their places and proofs."""

import dataclasses
from typing import Literal

Kind = Literal[
    "weight",  # a weight has different values
    "exchanged",  # a weight has another weight's values
    "checkpoint",  # most weights have different values
    "attribute",
    "operator",
    "constant",
    "extra",  # the graph computes something that the original does not
    "missing",  # the original computes something that the graph does not
    "wiring",  # a node reads a different value
    "operands",  # a node reads its values in a different order
    "order",  # elements are in a different order
    "inputs",  # inputs are swapped
    "outputs",  # outputs are swapped
    "quantized",  # a weight was quantized with other numbers than it needs
    "rounding",  # weights are quantized correctly, and too coarse
    "place",  # the place is proven, the cause is unknown
    "unproven",  # the likeliest place, for which there is no proof
]


@dataclasses.dataclass(frozen=True)
class Cause:
    """One cause of a difference.

    `node` is the graph's node, `tensor` the value it computes or the weight; `module`, `source` and
    `operation` are the original's counterpart. `text` describes the problem. Errors are largest
    differences relative to the expected values' RMS: `error` at the place, computed from the
    original's own inputs, and `corrected` with the change; `before` and `after` are those of the
    outputs. `values` are the graph's and the original's value of the worst element. `growth` leads
    from the place to the outputs. If `restored` is above 0, this is one of several faults: its
    correction restores that many later values to the original's. Of several wrong outputs,
    `output` is the one whose errors `before` and `after` are. `added` is a value and what it lacks,
    `stands_for` the input in whose place a constant is read. `of_kernels`: the graph is right;
    `instead` is code that computes the same as the node should, tried on the case's values.
    """

    kind: Kind
    text: str
    node: str | None = None
    tensor: str | None = None
    module: str = ""
    source: str | None = None
    operation: str | None = None
    error: float | None = None
    corrected: float | None = None
    before: float = 0.0
    after: float = 0.0
    values: tuple[float, float] | None = None
    growth: tuple[tuple[str, float], ...] = ()
    boundary: Literal["input", "output"] | None = None
    restored: int = 0
    explains: float | None = None
    output: str | None = None
    added: tuple[str, str] | None = None
    stands_for: str | None = None
    of_kernels: bool = False
    instead: str | None = None

    @property
    def share(self) -> float:
        """The share of the outputs' error that the cause explains, 0 to 1: of several causes
        (`explains`) the part that each correction took away.
        """
        if self.explains is not None:
            return self.explains
        if not self.before > 0:
            return 0.0
        if self.before == float("inf"):
            return 1.0 if self.after < float("inf") else 0.0
        return max(0.0, min(1.0, 1 - self.after / self.before))


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """Why a graph differs from its original on one case: causes, the one that explains most first.

    `error` is the outputs' as the graph is; `remaining` with all causes corrected. `seconds`: the
    search ended after that much processor time, and there may be more causes; None if it ended by
    itself.
    """

    error: float
    remaining: float
    causes: tuple[Cause, ...]
    seconds: float | None = None

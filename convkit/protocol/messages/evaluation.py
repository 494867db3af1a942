"""A task's data and metric, and what a built model scores on it."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The user's data and metric: see `Evaluate` of the recipe.

    `metric` is the name of one of convkit's or the name of a function in the file `code`. `inputs`
    maps inputs to columns; `texts` are the columns that the tokenizer turns into inputs, one call
    of the model per column. `mask` is the input that marks padding by the value `padding` (0 or 1),
    `tokens` the one whose tokens a
    perplexity predicts, or that grows by the `generate` tokens that the model adds to each row. The
    axes in `empty`, such as a cache's length, are as small as possible.
    """

    data: str
    metric: str
    output: str
    inputs: dict[str, str]
    texts: tuple[str, ...]
    labels: str | None
    mask: str | None = None
    padding: int = 0
    code: str | None = None
    most_rows: int | None = None
    tokens: str | None = None
    empty: tuple[str, ...] = ()
    generate: int | None = None

    @property
    def retrieves(self) -> bool:
        """True if each row's first text is to find its second one among all."""
        return self.metric.startswith("recall@") and len(self.texts) == 2


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """A row, from 0, on which the built model's decision differs from the original's."""

    row: int
    label: str
    original: str
    candidate: str


@dataclasses.dataclass(frozen=True)
class EvaluationMetrics:
    """The score of the original and of the built model on the same rows.

    `drop` is the original's score minus the built model's. If the score `rises`, it is how much
    higher the built model's is: a share of the original's if `relative` (a perplexity; 0.05 is
    5 %), or the plain difference (a word error rate). `low` and `high` are
    the ends of its paired bootstrap interval of 95 %. `disagreed` counts the rows with different
    decisions, some of which are listed. `error` says why there is no score. `shuffled` is the best
    score of the original's decisions dealt to other rows, of 20 times; NaN if it depends on none.
    """

    metric: str
    rows: int
    original: float
    candidate: float
    drop: float
    low: float
    high: float
    disagreed: int = 0
    disagreements: tuple[Disagreement, ...] = ()
    error: str | None = None
    rises: bool = False
    relative: bool = True
    shuffled: float = math.nan

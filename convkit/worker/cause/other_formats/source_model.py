"""A model of another format, as it is before its translation."""

import dataclasses
from collections.abc import Sequence

from convkit.worker.cause.graphs.runnable_graph import Values
from convkit.worker.cause.other_formats.source_operation import SourceStep


@dataclasses.dataclass(frozen=True)
class SourceModel:
    """A model that ran in one case: its operations in order, its constants, and every value.

    Floats are float32 throughout: the search is for what is computed, not for its rounding.
    """

    steps: Sequence[SourceStep]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Values
    values: Values

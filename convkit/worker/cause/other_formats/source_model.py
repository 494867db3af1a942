"""A model of another format, as it is before its translation."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from convkit.worker.cause.graphs.runnable_graph import Values
from convkit.worker.cause.other_formats.operation_writing import SourceOperation

Translation: TypeAlias = Callable[[SourceOperation], object]


@dataclasses.dataclass(frozen=True)
class SourceStep:
    """One operation of a model: `arguments` are values by name, `of_sizes` that it reads the sizes
    of its arguments alone, `settings` what it computes with that is not a tensor.
    """

    kind: str
    results: tuple[str, ...]
    arguments: Mapping[str, str | tuple[str, ...]]
    settings: Mapping[str, Any]
    of_sizes: bool = False


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

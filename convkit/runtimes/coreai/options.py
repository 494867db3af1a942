"""A Core AI target's own options, as passed to the worker."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class CompressionOptions:
    """How weights are stored: see `PackedWeights` of the recipe."""

    weights: Literal["int8", "int4"]
    block_size: int | None = None


@dataclasses.dataclass(frozen=True)
class CoreAIOptions:
    """`decompose`: torch's operators that become simpler ones before Core AI sees them.
    `entry_points`: further functions of the file by name, each with the sizes of axes that are
    fixed in it. `states`: what steps feeds back stays in the model.
    """

    decompose: tuple[str, ...] = ()
    entry_points: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    compression: CompressionOptions | None = None
    states: bool = False

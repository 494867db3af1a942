"""A target's engine options. Standard library only."""

import dataclasses
from typing import Literal

Sizes = dict[str, int]  # min, typical, max


@dataclasses.dataclass(frozen=True)
class Dla:
    """A deep learning accelerator: its number, and whether unsupported layers run on the GPU."""

    core: int
    fallback: bool = True


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """The keys of the recipe's `TensorRTTarget` that affect the engine. `profiles` contain sizes by
    axis.
    """

    profiles: tuple[dict[str, Sizes], ...] = ()
    workspace_gib: float | None = None
    builder_level: int = 3
    version_compatible: bool = False
    hardware_compatible: Literal["none", "ampere_plus", "same_compute_capability"] = "none"
    weights: Literal["fixed", "refit", "strip"] = "fixed"
    sparse_weights: bool = False
    dla: Dla | None = None
    tf32: bool = False

"""What a target's options say of an engine. Standard library only."""

import dataclasses
from typing import Literal

Sizes = dict[str, int]  # min, typical, max


@dataclasses.dataclass(frozen=True)
class Dla:
    """A deep learning accelerator: its number, and whether the GPU takes what it has no layer for."""

    core: int
    fallback: bool = True


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """The keys of `TensorRTTarget` of the recipe that shape the engine. `profiles` hold sizes by
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

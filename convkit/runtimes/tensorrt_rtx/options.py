"""A target's engine options. Standard library only."""

import dataclasses

from convkit.runtimes.tensorrt.options import Sizes


@dataclasses.dataclass(frozen=True)
class RtxOptions:
    """The keys of the recipe's `RtxTarget` that affect the engine. `profiles` contain sizes by
    axis; no `compute_capabilities`: the engine is for every GPU that the release supports.
    """

    profiles: tuple[dict[str, Sizes], ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    tf32: bool = False

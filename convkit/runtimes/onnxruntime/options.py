"""An onnxruntime target's session options, as passed to a worker."""

import dataclasses
from typing import Literal

Optimization = Literal["none", "basic", "extended", "all"]
LEVELS: tuple[Optimization, ...] = ("none", "basic", "extended", "all")


@dataclasses.dataclass(frozen=True)
class OnnxRuntimeOptions:
    """The keys of `OnnxRuntimeTarget` that affect a session; `provider` applies to CUDA only."""

    optimization: Optimization = "all"
    artifact: Literal["exported", "optimized"] = "exported"
    provider: Literal["cuda", "tensorrt"] | None = None
    provider_options: dict[str, bool | int | float | str] = dataclasses.field(default_factory=dict)
    tf32: bool = False
    package: Literal["genai"] | None = None
    shared_buffers: bool = False

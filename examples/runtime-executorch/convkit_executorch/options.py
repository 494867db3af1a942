"""An ExecuTorch target's own options, as passed to the worker."""

import dataclasses
from typing import Literal

Backend = Literal["xnnpack", "portable"]


@dataclasses.dataclass(frozen=True)
class ExecuTorchOptions:
    """`backend`: what computes; the portable kernels are slow, and need no backend."""

    backend: Backend = "xnnpack"

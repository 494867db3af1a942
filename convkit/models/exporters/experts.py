"""Lets mixtures of experts be traced: transformers' own implementations either sort tokens by
expert for an operator that ONNX lacks, or loop over the experts that the tokens chose.

`batched_mm` computes the same with gathered weights and batched products, for any choice.
"""

import contextlib
from collections.abc import Iterator

import torch

_TRACEABLE = "batched_mm"


@contextlib.contextmanager
def traceable_experts(module: torch.nn.Module) -> Iterator[None]:
    """While this is active, the experts of transformers' models use an implementation that can be
    traced. The verification compares it with the original's own.
    """
    with contextlib.ExitStack() as held:
        for model in _outermost(module):
            before = model.get_experts_implementation()
            if before.get("") in (None, _TRACEABLE):
                continue
            try:
                model.set_experts_implementation(_TRACEABLE)
            except (RuntimeError, ValueError):  # fixed when loaded, or unknown to this release
                continue
            held.callback(model.set_experts_implementation, before)
        yield


def _outermost(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return transformers' models that are not parts of another; releases before 5 have none."""
    if hasattr(module, "set_experts_implementation") and hasattr(
        module, "get_experts_implementation"
    ):
        return [module]
    return [model for child in module.children() for model in _outermost(child)]

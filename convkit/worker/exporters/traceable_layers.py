"""Lets torch.export trace nn.Transformer's layers when they are given a mask of the future.

torch looks whether the mask's values are those of a causal mask, which a trace cannot decide. It is
a hint only: without it, attention applies the mask as it is (torch's own documentation of
`_detect_is_causal_mask`). A hint that the caller gives is kept.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch.nn.modules import transformer

_DETECTION = "_detect_is_causal_mask"


_TRACEABLE = "batched_mm"


@contextlib.contextmanager
def without_causal_detection() -> Iterator[None]:
    """While this is active, no layer looks at the values of a mask to tell whether it is causal."""
    usual = getattr(transformer, _DETECTION, None)
    if usual is None:  # another release of torch
        yield
        return
    setattr(transformer, _DETECTION, _as_given)
    try:
        yield
    finally:
        setattr(transformer, _DETECTION, usual)


def _as_given(
    mask: torch.Tensor | None,
    is_causal: bool | None = None,  # noqa: FBT001 - torch's
    size: int | None = None,
) -> bool:
    del mask, size
    return is_causal is True


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


@contextlib.contextmanager
def attention_in_parts() -> Iterator[None]:
    """Let `nn.MultiheadAttention` compute with single operators: the exporter has no translation of
    the one that replaces them in inference.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)

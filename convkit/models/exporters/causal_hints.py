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

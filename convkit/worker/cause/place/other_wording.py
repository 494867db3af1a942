"""Other operations that compute what a wrong kernel should, tried on the values of the case."""

import itertools
from collections.abc import Iterator

import numpy as np
import onnx

# Axes of a resize, beyond which no picture or sound goes.
_MOST_AXES = 3


def other_wording(
    node: onnx.NodeProto, given: np.ndarray | None, expected: np.ndarray
) -> str | None:
    """Return how the model's code may say what a node should compute, with operations that only
    move values, so that no kernel can round; None if none gives the `expected` values exactly.
    """
    if node.op_type not in ("Resize", "Upsample") or given is None or given.ndim != expected.ndim:
        return None
    axes = [
        axis
        for axis, (before, after) in enumerate(zip(given.shape, expected.shape, strict=True))
        if before != after
    ]
    if not 0 < len(axes) <= _MOST_AXES:
        return None
    ways = [list(_indices(given.shape[axis], expected.shape[axis])) for axis in axes]
    for chosen in itertools.product(*ways):
        found, lines = given, []
        for axis, (text, places) in zip(axes, chosen, strict=True):
            found = np.take(found, places, axis)
            lines.append(f"x = x.index_select({axis}, {text})")
        if np.array_equal(found, expected):
            return "; ".join(lines)
    return None


def _indices(before: int, after: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the elements that a nearest resize may read, as torch's code and as numbers."""
    whole = np.arange(after) * before // after
    yield f"torch.arange({after}, device=x.device) * {before} // {after}", whole
    scaled = np.floor(np.arange(after, dtype=np.float32) * np.float32(before / after))
    yield (
        f"(torch.arange({after}, device=x.device) * {before / after!r}).long()",
        np.minimum(scaled.astype(np.int64), before - 1),
    )
    middle = np.floor((np.arange(after) + 0.5) * before / after).astype(np.int64)
    yield (
        f"((torch.arange({after}, device=x.device) + 0.5) * {before} / {after}).long()",
        np.minimum(middle, before - 1),
    )

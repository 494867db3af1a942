"""Reads and writes padding masks, and finds the positions at which an output is meaningless: those
that a mask among the inputs marks as padding.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec


def real_positions(mask: np.ndarray, padding: int) -> np.ndarray:
    """Return which elements of a mask are real positions: `padding`, 0 or 1, marks the others."""
    marked = np.asarray(mask) != 0
    return marked if padding == 0 else np.asarray(~marked)


def mask_values(real: np.ndarray, padding: int, numbers: Sequence[float] = ()) -> np.ndarray:
    """Return a mask's values: `padding`, 0 or 1, at all but the real positions; the number of a
    mask that is added to scores in place of 1.
    """
    if numbers:
        return np.where(real, 0.0, numbers[0])
    return (real != bool(padding)).astype(np.int8)


def causal_mask(shape: tuple[int, ...]) -> np.ndarray:
    """Return which pairs of the last two axes are visible: each position sees itself and those
    before it; if there are more of the latter, the last sees all.
    """
    queries, keys = shape[-2:] if len(shape) > 1 else (1, *shape)
    visible = np.arange(keys) <= np.arange(queries)[:, None] + max(0, keys - queries)
    return np.broadcast_to(visible, (*shape[:-2], queries, keys)).reshape(shape)


def output_padding(
    feeds: Mapping[str, np.ndarray], contract: Contract, output: TensorSpec
) -> np.ndarray | None:
    """Return the positions at which an output is meaningless, in its mask's shape; None without a
    mask.
    """
    mask = contract.mask_of(output)
    return None if mask is None else padding_positions(feeds, mask.name, mask.padding)


def real_values(values: np.ndarray, padded: np.ndarray | None) -> np.ndarray:
    """Return the values that are not at padding, flat; all of them without padding, or if its shape
    is no beginning of theirs.
    """
    if padded is None or values.shape[: padded.ndim] != padded.shape:
        return values
    return values[~padded]


def padding_positions(
    feeds: Mapping[str, np.ndarray], mask: str | None, padding: int
) -> np.ndarray | None:
    """Return the positions that a mask marks as padding by the value `padding`, in the mask's
    shape; None without a mask.

    A row without any live position does not count as padding: it is compared as a whole.
    """
    if mask is None or mask not in feeds:
        return None
    live = real_positions(feeds[mask], padding)
    padded: np.ndarray = ~live & live.any(axis=-1, keepdims=True)
    return padded

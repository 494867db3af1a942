"""Where an output means nothing: at the positions that a mask among the inputs marks as padding."""

from collections.abc import Mapping

import numpy as np


def padding_positions(feeds: Mapping[str, np.ndarray], mask: str | None) -> np.ndarray | None:
    """Return where a mask marks padding, in the mask's shape; None without a mask.

    A row without any live position is no padding: it is compared, whole.
    """
    if mask is None or mask not in feeds:
        return None
    live = np.asarray(feeds[mask]) != 0
    padding: np.ndarray = ~live & live.any(axis=-1, keepdims=True)
    return padding

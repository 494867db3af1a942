"""Finds the positions at which an output is meaningless: those that a mask among the inputs marks
as padding.
"""

from collections.abc import Mapping

import numpy as np


def padding_positions(feeds: Mapping[str, np.ndarray], mask: str | None) -> np.ndarray | None:
    """Return the positions that a mask marks as padding, in the mask's shape; None without a mask.

    A row without any live position does not count as padding: it is compared as a whole.
    """
    if mask is None or mask not in feeds:
        return None
    live = np.asarray(feeds[mask]) != 0
    padding: np.ndarray = ~live & live.any(axis=-1, keepdims=True)
    return padding

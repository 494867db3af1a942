"""Makes random weights reproducible across processes."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, numpy and Python's random inside the block, and restore their states
    afterwards.
    """
    import torch

    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - models draw from numpy's global generator
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)

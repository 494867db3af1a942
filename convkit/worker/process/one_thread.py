"""Has torch compute in the calling thread only."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside the block. Sums come out the same whatever share of the
    processor a stage has, the others need not share this thread's mode, and dozens of runs of a
    small model wait for no threads, which takes longer than they compute on a busy machine.
    """
    import torch

    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)

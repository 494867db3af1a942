"""The number of threads a worker may use."""

import os


def threads() -> int | None:
    """Return the worker's share of threads, from OpenMP's variable; None for all."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdigit() else None

"""How many threads a worker may use."""

import os


def threads() -> int | None:
    """Return the worker's share of threads, which it is told as OpenMP's would be; None for all."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    return int(count) if count.isdigit() else None

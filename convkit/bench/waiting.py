"""How long a process's threads wait for a processor, which Linux counts for each of them."""

import contextlib
from pathlib import Path

_THREADS = Path("/proc/self/task")


class Waiting:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._before = _counted()

    def share(self) -> float | None:
        """Return the share of the time in which this process's threads could have run, but waited
        for a processor (0 to 1); None if the system does not count it.
        """
        ran, waited = (
            after - before for after, before in zip(_counted(), self._before, strict=True)
        )
        return waited / (ran + waited) if ran + waited > 0 else None


def _counted() -> tuple[int, int]:
    """Return the nanoseconds that the threads have run, and waited in a run queue: the first two
    numbers of schedstat (docs.kernel.org/scheduler/sched-stats.html).
    """
    ran = waited = 0
    for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
        # A thread may end at any time, and a kernel may be built without these counts.
        with contextlib.suppress(OSError, ValueError):
            numbers = (thread / "schedstat").read_text(encoding="ascii").split()
            ran, waited = ran + int(numbers[0]), waited + int(numbers[1])
    return ran, waited

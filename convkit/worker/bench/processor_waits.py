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
        # Threads that began since then count from 0, and those that have ended do not count.
        began = self._before
        new = [(now, began.get(thread, (0, 0))) for thread, now in _counted().items()]
        ran = sum(now[0] - before[0] for now, before in new)
        waited = sum(now[1] - before[1] for now, before in new)
        return waited / (ran + waited) if ran + waited > 0 else None


def _counted() -> dict[str, tuple[int, int]]:
    """Return for each thread the nanoseconds that it has run, and waited in a run queue: the first
    two numbers of schedstat (docs.kernel.org/scheduler/sched-stats.html).
    """
    found = {}
    for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
        # A thread may end at any time, and a kernel may be built without these counts.
        with contextlib.suppress(OSError, ValueError):
            ran, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
            found[thread.name] = int(ran), int(waited)
    return found

"""The time that a survey has worked: a busy machine takes longer for the same work, and what a
draft says should not depend on that.
"""

import time

# Times the seconds of work that may pass on the clock of a busy machine.
_MOST_WAITING = 3.0


class WorkClock:
    """Seconds of work since it was made: of this thread's processor time, and at least a third of
    what passed, so that waiting ends, too.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._worked, self._passed = time.thread_time(), time.monotonic()

    def __call__(self) -> float:
        worked, passed = time.thread_time(), time.monotonic()
        self._seconds += max(worked - self._worked, (passed - self._passed) / _MOST_WAITING)
        self._worked, self._passed = worked, passed
        return self._seconds

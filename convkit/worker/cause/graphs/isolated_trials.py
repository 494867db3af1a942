"""Trials that may end the process: a kernel that divides by zero raises no exception."""

import faulthandler
import gc
import math
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from convkit.worker.process.memory_use import available_memory, data_size

T = TypeVar("T")
# Reports the next trial; a task calls it before each one.
Report = Callable[[int], None]
Task = Callable[[Report, frozenset[int]], T]
_NUMBER = struct.Struct("<q")
# How many trials may kill the process before a task is abandoned.
_DEATHS = 5
_BLOCK = 1 << 16
# How often a child is looked at, and for how long it may use no processor at all.
_LOOK_SECONDS, _STUCK_SECONDS = 2.0, 60.0
# Seconds on the clock for each of a search: the machine does other things as well.
PATIENCE = 1.5
# What a child may take, after its time is over, to end by itself.
_GRACE_SECONDS = 5.0


class TaskFailedError(Exception):
    """A task raised an exception in its own process; the message is its traceback."""


class _SearchClock:
    """The seconds that a search has used: of processor time, in this process and its ended
    children, or of time that passed, `PATIENCE` of them for one. Where the machine is busy or a
    trial waits, a search that is limited by this still ends.
    """

    def __init__(self) -> None:
        self.used, self._worked, self._passed = 0.0, self._work(), time.monotonic()

    @staticmethod
    def _work() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def read(self) -> float:
        """Return the seconds used so far."""
        worked, passed = self._work(), time.monotonic()
        self.used += max(worked - self._worked, (passed - self._passed) / PATIENCE)
        self._worked, self._passed = worked, passed
        return self.used


_CLOCK = _SearchClock()


def spent() -> float:
    """Return the seconds that this process has used, of which differences limit a search: of
    processor time, or a part of the time that passed if that is more.
    """
    return _CLOCK.read()


def survived(task: Task[T], until: float = math.inf) -> T | None:
    """Return the result of a task run in a forked process; None if it cannot be completed, or is
    not soon after `until` (of `time.monotonic`), when it should have ended by itself.

    The task reports the number of each trial before making it, and skips those in the given set,
    which killed the process before, or needed more than half of the memory that was left. On
    systems other than Linux, a process with loaded frameworks cannot be forked safely, so the task
    runs in this one. Raises TaskFailedError.
    """
    if not sys.platform.startswith("linux"):
        return task(lambda number: None, frozenset())  # noqa: ARG005
    deadly: set[int] = set()
    for _ in range(_DEATHS):
        last, answer = _forked(task, frozenset(deadly), until + _GRACE_SECONDS)
        if answer is not None:
            done, result = pickle.loads(answer)  # noqa: S301 - our own child's
            if not done:
                raise TaskFailedError(result)
            return result
        if last is None or last in deadly or time.monotonic() > until:
            return None
        deadly.add(last)
    return None


def _forked(task: Task[T], deadly: frozenset[int], until: float) -> tuple[int | None, bytes | None]:
    """Return the last trial that was reported, and the pickled answer if there is one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(task, deadly, writing)
    os.close(writing)
    data = _read_to_end(reading, child, until)
    os.waitpid(child, 0)
    last: int | None = None
    for place in range(0, len(data) - _NUMBER.size + 1, _NUMBER.size):
        (number,) = _NUMBER.unpack_from(data, place)
        if number < 0:  # the rest is the answer
            return last, data[place + _NUMBER.size :]
        last = number
    return last, None


def _read_to_end(reading: int, child: int, until: float) -> bytes:
    """Return all that a child writes before it ends; one that is stuck, or late, is killed.

    A library's thread of which the parent had one, and that held a lock when it was forked, will
    never release it in the child.
    """
    data, worked, last = b"", 0.0, time.monotonic()
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while True:
            ready, _, _ = select.select([stream], [], [], _LOOK_SECONDS)
            if ready:
                block = stream.read(_BLOCK)
                if not block:
                    return data
                data += block
            now, before = time.monotonic(), worked
            worked = _processor_time(child)
            if ready or worked != before:
                last = now
            if now - last > _STUCK_SECONDS or now > until:
                os.kill(child, signal.SIGKILL)


def _processor_time(process: int) -> float:
    """Return the ticks that a process and its children have used; NaN, which equals nothing, while
    it waits for children of its own, or if it has ended.
    """
    try:
        if Path(f"/proc/{process}/task/{process}/children").read_text():
            return math.nan
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return sum(map(float, fields[11:15]))  # utime to cstime, as proc(5) numbers them


def _answer(task: Task[T], deadly: frozenset[int], writing: int) -> NoReturn:
    """Run the task in the child, write its answer, and end without the parent's cleanup."""
    gc.freeze()  # a collection would write to every object, and copy its page
    faulthandler.disable()  # a trial that ends the process is expected, and skipped
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_size() + available_memory() // 2, hard))
    answer: tuple[bool, Any]
    try:
        answer = True, task(lambda number: _write(writing, _NUMBER.pack(number)), deadly)
    except MemoryError:
        os._exit(1)  # as what ends the process in another way: the trial is left out
    except BaseException:  # noqa: BLE001 - the parent raises it
        answer = False, traceback.format_exc()
    _write(writing, _NUMBER.pack(-1) + pickle.dumps(answer))
    os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]

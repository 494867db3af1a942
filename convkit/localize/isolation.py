"""Trials that may end the process: a kernel that divides by zero raises no exception."""

import faulthandler
import gc
import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
# Reports the next trial; a task calls it before each one.
Report = Callable[[int], None]
Task = Callable[[Report, frozenset[int]], T]
_NUMBER = struct.Struct("<q")
# How many trials may kill the process before a task is abandoned.
_DEATHS = 5


class TaskFailedError(Exception):
    """A task raised an exception in its own process; the message is its traceback."""


def spent() -> float:
    """Return the seconds of processor time that this process and its ended children have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def survived(task: Task[T]) -> T | None:
    """Return the result of a task run in a forked process; None if it cannot be completed.

    The task reports the number of each trial before making it, and skips those in the given set,
    which killed the process before. On systems other than Linux, a process with loaded frameworks
    cannot be forked safely, so the task runs in this one. Raises TaskFailedError.
    """
    if not sys.platform.startswith("linux"):
        return task(lambda number: None, frozenset())  # noqa: ARG005
    deadly: set[int] = set()
    for _ in range(_DEATHS):
        last, answer = _forked(task, frozenset(deadly))
        if answer is not None:
            done, result = pickle.loads(answer)  # noqa: S301 - our own child's
            if not done:
                raise TaskFailedError(result)
            return result
        if last is None or last in deadly:
            return None
        deadly.add(last)
    return None


def _forked(task: Task[T], deadly: frozenset[int]) -> tuple[int | None, bytes | None]:
    """Return the last trial that was reported, and the pickled answer if there is one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(task, deadly, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    last: int | None = None
    for place in range(0, len(data) - _NUMBER.size + 1, _NUMBER.size):
        (number,) = _NUMBER.unpack_from(data, place)
        if number < 0:  # the rest is the answer
            return last, data[place + _NUMBER.size :]
        last = number
    return last, None


def _answer(task: Task[T], deadly: frozenset[int], writing: int) -> NoReturn:
    """Run the task in the child, write its answer, and end without the parent's cleanup."""
    gc.freeze()  # a collection would write to every object, and copy its page
    faulthandler.disable()  # a trial that ends the process is expected, and skipped
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer: tuple[bool, Any]
    try:
        answer = True, task(lambda number: _write(writing, _NUMBER.pack(number)), deadly)
    except BaseException:  # noqa: BLE001 - the parent raises it
        answer = False, traceback.format_exc()
    _write(writing, _NUMBER.pack(-1) + pickle.dumps(answer))
    os._exit(0)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]

"""Other processes that tests start: whether they run, and that none outlives its test."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def soon(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Return whether a condition comes true in time; a busy machine needs many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone_soon(pid: int) -> bool:
    """Return whether a process ends in time; let it run for minutes if nothing ends it."""
    return soon(lambda: not alive(pid))


@contextlib.contextmanager
def ended_with_the_test(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill processes that still run at the end, as after a failed assertion; close their pipes."""
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        yield

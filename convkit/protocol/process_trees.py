"""Finds and ends the processes that a process left behind, in whatever session they are. Standard
library only.

A process that calls `setsid` leaves its parent's group, and one that forks twice its ancestry too.
Linux shows three traces that stay: the parent, which is the nearest ancestor that asked to be
(`PR_SET_CHILD_SUBREAPER`, see prctl(2)) once the real one has ended; a variable in the environment
that the process was started with (proc(5)); and its start time, which tells it from a later process
with the same id. Other systems show none of these to a process without privileges: there, only
groups end.
"""

import contextlib
import ctypes
import dataclasses
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

# Names a worker in the environment of everything it starts.
STAGE_VARIABLE = "CONVKIT_STAGE"
_PROCESSES = Path("/proc")
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
# A process that is being ended can start another one, which the next round finds.
_MOST_ROUNDS = 20


@dataclasses.dataclass(frozen=True)
class LiveProcess:
    """A process that has not ended: its id, and its start in clock ticks since the system's."""

    pid: int
    started: int

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self in (found for found, _ in _each(lambda pid: pid == self.pid)):
                os.kill(self.pid, number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends. Does nothing where the system
    has no such thing.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(ancestor: int, beside: Collection[int] = ()) -> set[LiveProcess]:
    """Return the living descendants of a process, without the children with the ids `beside` and
    theirs.
    """
    children = defaultdict(set)
    for process, parent in _each():
        children[parent].add(process)
    found: set[LiveProcess] = set()
    unvisited = [ancestor]
    while unvisited:
        new = {child for child in children[unvisited.pop()] - found if child.pid not in beside}
        found |= new
        unvisited += [process.pid for process in new]
    return found


def started_by(stage: str) -> set[LiveProcess]:
    """Return the living processes whose environment names a stage, of those that can be read."""
    wanted = f"{STAGE_VARIABLE}={stage}".encode()
    return {process for process, _ in _each(lambda pid: wanted in _environment(pid))}


def end_all(find: Callable[[], Iterable[LiveProcess]]) -> None:
    """Kill what `find` finds, until it finds nothing new: processes that cannot be killed stay."""
    killed: set[LiveProcess] = set()
    for _ in range(_MOST_ROUNDS):
        found = set(find()) - killed
        if not found:
            return
        for process in found:
            process.send(signal.SIGKILL)
        killed |= found


def _each(wanted: Callable[[int], bool] = lambda _: True) -> Iterator[tuple[LiveProcess, int]]:
    """Yield the living processes with the ids that are wanted, and their parents' ids."""
    for name in os.listdir(_PROCESSES) if _PROCESSES.is_dir() else ():  # noqa: PTH208 - thousands
        if not name.isdecimal() or not wanted(int(name)):
            continue
        with contextlib.suppress(OSError):
            # The name before the last parenthesis may contain anything, parentheses too.
            status = (_PROCESSES / name / "stat").read_bytes().rpartition(b")")[2].split()
            if status[0] not in (b"Z", b"X"):
                yield LiveProcess(int(name), int(status[19])), int(status[1])


def _environment(pid: int) -> list[bytes]:
    """Return the variables that a process was started with; none if it has ended or is somebody
    else's.
    """
    try:
        return (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []

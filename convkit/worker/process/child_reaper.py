"""Waits for forked workers in place of the server that forked them.

A server keeps everything it has imported. Once it will fork no more workers, it becomes this
program, which needs a few MB: the process, and with it the workers' parent, stays the same. Imports
only the standard library and what needs no more.
"""

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

from convkit.protocol.process_trees import descendants, end_all

_BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
_BLOCK = 64 * 1024


class ChildExits:
    """A descriptor that is readable once a child of this process has ended, for loops that wait for
    several. It takes over the process's handling of SIGCHLD.
    """

    def __init__(self) -> None:
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it interrupts the wait
        self.resume()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._woken

    def clear(self) -> None:
        """Make the descriptor wait for further exits; call this before the ended are reaped."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, _BLOCK)

    def pause(self) -> None:
        """Write no more into the descriptor, which another program may inherit."""
        signal.set_wakeup_fd(-1)

    def resume(self) -> None:
        """Write into the descriptor again."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def leave(self) -> None:
        """In a fork: handle SIGCHLD as usual, and close what is the parent's."""
        self.pause()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._woken)
        os.close(self._wake)


def reap(statuses: dict[int, int]) -> None:
    """Report the exit code of every worker that has ended, after what it left behind has ended too.
    `statuses` are the descriptors that report it, by process id.
    """
    with contextlib.suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            descriptor = statuses.pop(pid, None)
            if descriptor is None:
                continue  # an orphan, which this process adopted
            # A server starts nothing but workers: its other children are theirs, adopted.
            end_all(lambda: descendants(os.getpid(), beside=statuses))
            with contextlib.suppress(BrokenPipeError):  # the client is gone
                os.write(descriptor, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(descriptor)


def kill(statuses: dict[int, int]) -> None:
    """Kill the remaining workers and everything that they started."""
    for pid in statuses:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    end_all(lambda: descendants(os.getpid()))


def become_reaper(orders: int, statuses: dict[int, int]) -> None:
    """Make this process one that runs `reap_for`. `orders` is the socket whose end ends it."""
    for descriptor in (orders, *statuses.values()):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - the function's only parameter
    # No site packages and no variables of Python's: nothing but the standard library runs.
    program = [sys.executable, "-I", "-S", str(_BOOTSTRAP), "--reap"]
    program += [str(orders), json.dumps(statuses)]
    os.execv(sys.executable, program)  # noqa: S606 - no shell on purpose


def reap_for(orders: str, workers: str) -> None:
    """Report workers that end, until the other end of the socket closes; then kill the rest. The
    arguments are those of `become_reaper`, as it writes them.
    """
    _attend(int(orders), {int(pid): status for pid, status in json.loads(workers).items()})


def _attend(orders: int, statuses: dict[int, int]) -> None:
    exits = ChildExits()
    waited: list[int | ChildExits] = [orders, exits]
    while True:
        reap(statuses)  # also those that ended before this program began
        ready, _, _ = select.select(waited, [], [])
        if exits in ready:
            exits.clear()
        if orders in ready and not os.read(orders, _BLOCK):
            kill(statuses)
            return

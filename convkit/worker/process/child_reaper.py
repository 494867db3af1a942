"""Waits for forked workers in place of the server that forked them.

A server keeps everything it has imported. Once it will fork no more workers, it becomes this
program, which needs a few MB: the process, and with it the workers' parent, stays the same. Imports
only the standard library.
"""

import contextlib
import json
import os
import select
import signal
import sys

_BLOCK = 64 * 1024


def reap(statuses: dict[int, int]) -> None:
    """Report the exit code of every worker that has ended. `statuses` are the descriptors that
    report it, by process id.
    """
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        descriptor = statuses.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # the client is gone
            os.write(descriptor, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(descriptor)


def kill(statuses: dict[int, int]) -> None:
    """Kill the remaining workers and their children."""
    for pid in statuses:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def become_reaper(orders: int, statuses: dict[int, int]) -> None:
    """Make this process the program below. `orders` is the socket whose end ends it."""
    for descriptor in (orders, *statuses.values()):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - the function's only parameter
    # No site packages and no variables of Python's: nothing but the standard library runs.
    program = [sys.executable, "-I", "-S", __file__, str(orders), json.dumps(statuses)]
    os.execv(sys.executable, program)  # noqa: S606 - no shell on purpose


def main(orders: int, statuses: dict[int, int]) -> None:
    """Report workers that end, until the other end of the socket closes; then kill the rest."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it interrupts the wait
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        reap(statuses)  # also those that ended before this program began
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, _BLOCK)
        if orders in ready and not os.read(orders, _BLOCK):
            kill(statuses)
            return


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        {int(pid): descriptor for pid, descriptor in json.loads(sys.argv[2]).items()},
    )

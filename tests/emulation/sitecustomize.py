"""Imported by every emulated Python when it starts: hides the emulator's own threads.

qemu's user mode has a thread beside the program's, and /proc/self/task lists it. Taken for one of
the program's, it would keep every fork server from forking: each worker would import its tools
anew, and torch takes half a minute there. qemu starts its thread again in every fork.
"""

import os
import pathlib
from collections.abc import Iterator

_TASKS = pathlib.Path("/proc/self/task")
_iterdir = pathlib.Path.iterdir
_emulators: set[str] = set()


def _note() -> None:
    """Note the emulator's threads: the program has only its first one yet."""
    _emulators.clear()
    _emulators.update({each.name for each in _iterdir(_TASKS)} - {str(os.getpid())})


def _without_the_emulators(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for each in _iterdir(folder):
        if folder != _TASKS or each.name not in _emulators:
            yield each


_note()
os.register_at_fork(after_in_child=_note)
pathlib.Path.iterdir = _without_the_emulators  # type: ignore[method-assign]

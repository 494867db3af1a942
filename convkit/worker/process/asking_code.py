"""Finds out who asks: the user's own code, alone or through the standard library or a library.

A lookup counts where the user's code is among its callers; what libraries ask for themselves, such
as where their own files are, does not. Standard library only.
"""

import functools
import os
import sys
import threading
from types import FrameType

from convkit.worker.process.user_modules import is_tool_path

_HERE = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH118, PTH120 - as frames have it


def callers() -> FrameType | None:
    """Return the frame that asks, outside what records it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - inspect's is slow
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame


def asking(*, of_import: bool = False) -> tuple[frozenset[str] | None, bool]:
    """Return the standard library's functions between the user's code and a lookup, and whether
    nothing else is between them; None if the user's code does not ask. `of_import`: it asks for a
    module itself, not for what one needs that it asked for.

    In a thread of its own, a function of the standard library that the user's code handed over has
    no caller (`executor.map(os.path.exists, paths)`): it counts as the user's.
    """
    names: set[str] = set()
    direct = True
    frame = callers()
    while frame is not None:
        kind = _kind_of(frame.f_code.co_filename)
        if kind == "import" and not of_import:
            return None, False  # what a library looks for while it is imported
        if kind == "user":
            return frozenset(names), direct
        if kind == "library":
            direct = False
        elif direct and kind == "standard":
            names.add(frame.f_code.co_name)
        frame = frame.f_back
    if direct and threading.get_ident() != threading.main_thread().ident:
        return frozenset(names), True
    return None, False


@functools.cache
def _kind_of(filename: str) -> str:
    if filename.startswith("<frozen importlib"):
        return "import"
    if filename.startswith("<frozen "):
        return "standard"
    if filename.startswith("<"):
        return "made"  # by `exec`: whoever runs it asks
    if filename.startswith(os.path.dirname(os.__file__)) and "site-packages" not in filename:  # noqa: PTH120 - see above
        return "standard"
    return "library" if is_tool_path(filename) else "user"

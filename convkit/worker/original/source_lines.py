"""Lines of a model's own source code, found in stack traces. Standard library only.

A line is `file:line`, the file relative to the model's own folder or to what is installed, never an
environment's path. A line of a library is followed by the nearest one of the model's own files:
`timm/layers/norm.py:31, called at model.py:12`.
"""

import functools
import inspect
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
# Python's own modules, through which code calls itself: functools, contextlib, copy.
_STANDARD_LIBRARY = f"{Path(os.__file__).parent.as_posix()}/"
# Frames in these files belong to the tracing of the model, not to the model.
_NOT_THE_MODEL = ("torch/", "convkit/worker/")
# This convkit's own, even if it lies in the model's folder: a copy beside the recipe, a submodule.
_CONVKIT = f"{Path(__file__).parents[2].as_posix()}/"

# A file and a line in it.
Position = tuple[str, int]


def source_line(trace: str, root: str | None) -> str:
    """Return the innermost line of the model's own code in a printed stack trace, "" if there is
    none. `root` is the folder of the model's own source files.
    """
    found = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(trace)]
    return innermost_line(reversed(found), root) or ""


def innermost_line(positions: Iterable[Position], root: str | None) -> str | None:
    """Return the innermost line of the model's own code, given the innermost position first; None
    if there is none. A line of a library is followed by the nearest one of the files under `root`.
    """
    library = None
    for file, line in positions:
        source = relative_source(file, line, root)
        if source is None:
            continue
        if root is not None and _is_under(file, root):
            return source if library is None else f"{library}, called at {source}"
        if library is None and (root is None or not _INSTALLED.match(file.replace("\\", "/"))):
            return source
        library = library or source
    return library


def calling_positions(frame: FrameType | None) -> Iterator[Position]:
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def raising_positions(trace: TracebackType | None) -> list[Position]:
    """Return where an exception was raised and what had called that, innermost first."""
    found = list[Position]()
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return found[::-1]


def relative_source(file: str, line: int, root: str | None) -> str | None:
    """Return `file:line` of a frame, with the file relative to where it is installed or to `root`.

    None for frames that belong to the call or the tracing of the model or to Python's own modules,
    and for code without a file, which torch writes for branches and loops.
    """
    return relative_line(file, line, root) if _is_the_model(file, root) else None


@functools.lru_cache(4096)
def _is_the_model(file: str, root: str | None) -> bool:
    if file.startswith("<"):
        return False
    file = file.replace("\\", "/")
    if file.startswith(_CONVKIT):
        return False
    if root is not None and _is_under(file, root):
        return True
    installed = _INSTALLED.sub("", file)
    if any(f"/{name}" in f"/{file}" and _is_tracer(installed, name) for name in _NOT_THE_MODEL):
        return False
    return installed != file or not file.startswith(_STANDARD_LIBRARY)


def relative_line(file: str, line: int, root: str | None) -> str:
    """Return `file:line`, relative to `root` or to the package that the file is from; the name of
    any other file, without its folders.
    """
    file = file.replace("\\", "/")
    if root is not None and _is_under(file, root):
        return f"{file[len(root.rstrip('/')) + 1 :]}:{line}"
    installed = _INSTALLED.sub("", file)
    return f"{installed if installed != file else file.rpartition('/')[2]}:{line}"


def _is_under(file: str, root: str) -> bool:
    """Say whether a file is the model's own: environments are in the model's folder, too, as
    convkit's in `runs` or a project's `.venv`.
    """
    inner = file.removeprefix(f"{root.rstrip('/')}/")
    return inner != file and not _INSTALLED.match(f"/{inner}")


def _is_tracer(file: str, name: str) -> bool:
    return file.startswith(name) or (name.startswith("convkit/") and f"/{name}" in file)


def running_line(root: str | None, ours: tuple[str, ...]) -> str | None:
    """Return the line of the model's code that is running, itself or in torch's functions; None in
    other code. `ours` are the beginnings of the paths of what looks for it.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        line = relative_line(name, frame.f_lineno, root)
        if not name.startswith((__file__, *ours)) and not line.startswith("torch/"):
            return line
        frame = frame.f_back
    return None

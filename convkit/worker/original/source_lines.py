"""Lines of a model's own source code, found in stack traces. Standard library only."""

import re

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
# Frames in these files belong to the tracing of the model, not to the model.
_NOT_THE_MODEL = ("torch/", "convkit/worker/")


def source_line(trace: str, root: str | None) -> str:
    """Return `file:line` of the innermost frame of the model's own code, with the file relative to
    where it is installed.
    """
    for frame in reversed(list(_FRAME.finditer(trace))):
        if (source := relative_source(frame["file"], int(frame["line"]), root)) is not None:
            return source
    return ""


def relative_source(file: str, line: int, root: str | None) -> str | None:
    """Return `file:line` of a frame, with the file relative to where it is installed or to `root`.

    None for frames that belong to the call or the tracing of the model, and for code without a
    file, which torch writes for branches and loops.
    """
    if file.startswith("<"):
        return None
    file = file.replace("\\", "/")
    if root is not None and file.startswith(f"{root.rstrip('/')}/"):
        return f"{file[len(root.rstrip('/')) + 1 :]}:{line}"
    installed = _INSTALLED.sub("", file)
    if any(f"/{name}" in f"/{file}" and _is_tracer(installed, name) for name in _NOT_THE_MODEL):
        return None
    return f"{installed if installed != file else file.rpartition('/')[2]}:{line}"


def _is_tracer(file: str, name: str) -> bool:
    return file.startswith(name) or (name.startswith("convkit/") and f"/{name}" in file)

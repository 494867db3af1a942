"""Finds the lines of a model's code that fix a size which torch.export was told may vary."""

import contextlib
import logging
import traceback
from collections.abc import Iterator

from convkit.models.source_lines import relative_source

# torch's structured trace, which its own tlparse reads.
_TRACE = "torch.__trace"
_EVENT = "symbolic_shape_specialization"


@contextlib.contextmanager
def specialized_at(root: str | None) -> Iterator[dict[int, tuple[str, str]]]:
    """Inside the block, note where torch.export gives an axis the example's size.

    Returns `file:line` and the text of the line by size; a size that two axes have keeps its first
    line. `root` is the folder of the model's source files.
    """
    handler = _Noting(root)
    logger = logging.getLogger(_TRACE)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.found
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Noting(logging.Handler):
    """torch logs the event while the line runs, so the stack is that of the model's code."""

    def __init__(self, root: str | None) -> None:
        super().__init__()
        self._root = root
        self.found: dict[int, tuple[str, str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Note the innermost line of the model's own code."""
        event = getattr(record, "metadata", {}).get(_EVENT)
        value = str(event.get("value", "")) if event is not None else ""
        if not value.isdigit():
            return
        for frame in reversed(traceback.extract_stack()):
            if frame.lineno is None or frame.filename == logging.__file__:
                continue
            source = relative_source(frame.filename, frame.lineno, self._root)
            if source is not None:
                self.found.setdefault(int(value), (source, (frame.line or "").strip()))
                return

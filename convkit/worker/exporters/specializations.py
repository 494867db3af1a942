"""Finds the lines of a model's code that fix or restrict a size that should vary."""

import contextlib
import dataclasses
import logging
import traceback
from collections.abc import Iterator

from convkit.worker.original.source_lines import relative_source

# torch's structured trace, which its own tlparse reads.
_TRACE = "torch.__trace"
_FIXED = "symbolic_shape_specialization"
_GUARDS = ("guard_added", "guard_added_fast")


@dataclasses.dataclass
class SizeLines:
    """Where torch.export fixes and restricts sizes, as `file:line` with the text of the line.

    `fixed` is by size; a size that two axes have keeps its first line.
    """

    fixed: dict[int, tuple[str, str]] = dataclasses.field(default_factory=dict)
    guards: dict[str, str] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def size_lines(root: str | None) -> Iterator[SizeLines]:
    """Inside the block, note where torch.export gives an axis the example's size, or a range.

    `root` is the folder of the model's source files.
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
        self.found = SizeLines()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the innermost line of the model's own code."""
        metadata = getattr(record, "metadata", {})
        if any(event in metadata for event in _GUARDS):
            if (line := self._line()) is not None:
                self.found.guards.setdefault(*line)
            return
        value = str(metadata[_FIXED].get("value", "")) if _FIXED in metadata else ""
        if value.isdigit() and (line := self._line()) is not None:
            self.found.fixed.setdefault(int(value), line)

    def _line(self) -> tuple[str, str] | None:
        for frame in reversed(traceback.extract_stack()):
            if frame.lineno is None or frame.filename in (logging.__file__, __file__):
                continue
            source = relative_source(frame.filename, frame.lineno, self._root)
            if source is not None:
                return source, (frame.line or "").strip()
        return None

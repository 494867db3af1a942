"""The lines that torch.export records of each operation: by default those of functions called
`forward` alone, so that what a helper or another method computes seems to be where it was called.
"""

import contextlib
import itertools
import traceback
from collections.abc import Iterator

from torch.fx.proxy import TracerBase

from convkit.worker.original.source_lines import relative_source


@contextlib.contextmanager
def every_line(root: str | None) -> Iterator[None]:
    """Let torch record, inside the block, every line of the model's own code and of the libraries
    that it calls, outermost first. `root` is the folder of the model's own source files.
    """

    def of_the_model(_: TracerBase, frames: traceback.StackSummary) -> traceback.StackSummary:
        # What comes before the first module has called the tracing.
        inner = itertools.dropwhile(lambda frame: frame.name != "forward", frames)
        kept = (f for f in inner if relative_source(f.filename, f.lineno or 0, root) is not None)
        return traceback.StackSummary.from_list(list(kept))

    kept_frames = TracerBase._filter_traceback_frames  # noqa: SLF001 - made to be replaced
    TracerBase._filter_traceback_frames = of_the_model  # noqa: SLF001
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = kept_frames  # noqa: SLF001

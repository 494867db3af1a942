"""coremltools without its chatter."""

import contextlib
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep coremltools' remarks out of the log.

    It speaks of versions that it was not tested with and of parts that exist on macOS only, and leaves temporary
    folders to the garbage collector, which warns of each.
    """
    logger = logging.getLogger("coremltools")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

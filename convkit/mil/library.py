"""coremltools without its chatter, and without what it has for other frameworks."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator

# It imports each that is installed, to know that it is there and to convert its models; a torch
# module's conversion to an ML program needs none of them, and a model that does has imported it by
# then.
_OTHER_FRAMEWORKS = ("sklearn", "xgboost", "tensorflow", "transformers", "torchaudio")


def load_library() -> None:
    """Import coremltools as though the other frameworks were absent, which would take up to two
    seconds of a stage.

    To be called before a stage first imports a part of it. They can be imported afterwards, as
    ever. Raises ImportError where coremltools is absent.
    """
    if "coremltools" in sys.modules:
        return
    hidden = [name for name in _OTHER_FRAMEWORKS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
    try:
        with quiet():
            import coremltools  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep coremltools' remarks out of the log.

    It speaks of versions that it was not tested with and of parts that exist on macOS only, and
    leaves temporary folders to the garbage collector, which warns of each.
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

"""Imports coremltools without its messages, and without its support for other frameworks."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

# coremltools imports each of these that is installed, to detect it and convert its models.
# Converting a torch module to an ML program needs none of them, and a model that does has already
# imported it.
_OTHER_FRAMEWORKS = ("sklearn", "xgboost", "tensorflow", "transformers", "torchaudio")


def load_library() -> None:
    """Import coremltools as if the other frameworks were absent; they would take up to two seconds
    of a stage.

    Call this before a stage first imports any part of coremltools. The frameworks can be imported
    afterwards, as usual. Raises ImportError if coremltools is absent.
    """
    if "coremltools" in sys.modules:
        return
    hidden = [name for name in _OTHER_FRAMEWORKS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
    try:
        with quiet():
            import coremltools  # noqa: F401

            accept_varying_axes()
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep coremltools' messages out of the log.

    It mentions versions it was not tested with and parts that exist only on macOS, and leaves
    temporary folders to the garbage collector, which warns about each.
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


def accept_varying_axes() -> None:
    """Let the operation's axes vary: coremltools wants the very same symbol for data and indices,
    and gives a tensor that was repeated another.
    """
    from coremltools.converters.mil.mil.ops.defs.iOS15.scatter_gather import scatter_along_axis
    from coremltools.converters.mil.mil.types.symbolic import is_compatible_symbolic_vector

    own: Any = scatter_along_axis.type_inference
    if getattr(own, "accepts_varying", False):
        return

    def inferred(self: Any) -> Any:  # noqa: ANN401
        axis = self.axis.val % self.data.rank
        shapes = [
            [size for place, size in enumerate(each.shape) if place != axis]
            for each in (self.data, self.indices)
        ]
        if self.data.rank == self.indices.rank and is_compatible_symbolic_vector(*shapes):
            return self.data.sym_type
        return own(self)

    inferred.accepts_varying = True  # type: ignore[attr-defined]  # registering twice changes nothing
    scatter_along_axis.type_inference = inferred

"""coremltools, imported without what it has for other frameworks."""

import contextlib
import sys

from convkit.worker.coreml.quiet import quiet

# It imports each that is installed, to know that it is there and to convert its models; a torch module's conversion
# to an ML program needs none of them, and a model that does has imported it by then.
_OTHER_FRAMEWORKS = ("sklearn", "xgboost", "tensorflow", "transformers", "torchaudio")


def load_library() -> None:
    """Import coremltools as though the other frameworks were absent, which would take up to two seconds of a stage.

    They can be imported afterwards, as ever. Where coremltools itself is absent, whoever needs it says so.
    """
    hidden = [name for name in _OTHER_FRAMEWORKS if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import fail
    try:
        with contextlib.suppress(ImportError), quiet():
            import coremltools  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]

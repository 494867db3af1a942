"""Garbage collection where much is imported: a full one visits every object of torch."""

import gc


def collect() -> None:
    """Collect garbage, and exempt what is left from all later collections.

    coremltools asks for a full collection after each conversion, and some tests do: with torch and
    coremltools imported, one takes as long as the conversion of a small model.
    """
    gc.collect()
    gc.freeze()

"""The original model as a loader left it: a process from which several stages are forked."""

from convkit.codec import Json, decode
from convkit.models.sources.loaded import LoadedModel
from convkit.worker.protocol import Source

_LOADED: list[tuple[Source, LoadedModel]] = []


def load_ahead(source: Json) -> None:
    """Load a model for the processes that will be forked from this one; raises as `load_model`."""
    from convkit.models.sources.registry import load_model

    wanted = decode(Source, source)
    _LOADED.append((wanted, load_model(wanted)))


def take_loaded(source: Source) -> LoadedModel | None:
    """Return the model if it was loaded ahead. Only once: whoever loads it again may have changed
    the first one.
    """
    for place, (loaded, _) in enumerate(_LOADED):
        if loaded == source:
            return _LOADED.pop(place)[1]
    return None

"""A local folder in transformers' layout."""

from pathlib import Path

from convkit.models.sources import transformers_folder
from convkit.models.sources.loaded import LoadedModel
from convkit.worker.protocol import Source


def load(source: Source) -> LoadedModel:
    """Load the folder without network access."""
    assert source.path is not None
    folder = Path(source.path)
    return transformers_folder.load(folder, source, key="model.path", description=folder.name)

"""A folder in transformers' layout from a Python package that the host has unpacked."""

from pathlib import Path

from convkit.models.sources import transformers_folder
from convkit.models.sources.loaded import LoadedModel
from convkit.worker.protocol import Source


def load(source: Source) -> LoadedModel:
    """Load the folder without network access."""
    assert source.path is not None
    folder = Path(source.path)
    description = f"{source.identifier or 'package'}: {folder.name}"
    return transformers_folder.load(
        folder, source, key="model.package.path", description=description
    )

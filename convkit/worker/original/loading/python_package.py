"""A folder in transformers' layout from a Python package that the host has unpacked."""

from pathlib import Path

from convkit.protocol.messages import Source
from convkit.worker.original.loading import transformers_folder
from convkit.worker.original.loading.loaded_model import LoadedModel


def load(source: Source) -> LoadedModel:
    """Load the folder without network access."""
    assert source.path is not None
    folder = Path(source.path)
    description = f"{source.identifier or 'package'}: {folder.name}"
    return transformers_folder.load(
        folder, source, key="model.package.path", description=description
    )

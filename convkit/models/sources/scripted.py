"""A TorchScript archive, as torch.jit.save writes it."""

import warnings
from pathlib import Path

from convkit.models.sources.archive_kinds import unreadable
from convkit.models.sources.loaded import LoadedModel
from convkit.worker.context import StageFailedError
from convkit.worker.protocol import Source


def load(source: Source) -> LoadedModel:
    """Load the archive. TorchScript has its own interpreter and unpickles no Python objects."""
    import torch

    from convkit.models.sources.script_archive import ScriptArchive

    assert source.path is not None
    path = Path(source.path)
    if not path.is_file():
        raise StageFailedError(f"model.torchscript: there is no file {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated; archives remain
            archive = torch.jit.load(str(path), map_location="cpu")
    except Exception as error:  # torch raises RuntimeError, ValueError and others
        raise unreadable("torchscript", path, error) from error
    return LoadedModel(module=ScriptArchive(archive), description=f"TorchScript {path.name}")

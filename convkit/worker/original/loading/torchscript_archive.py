"""A TorchScript archive, as torch.jit.save writes it."""

import warnings
from pathlib import Path

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.archive_kinds import unreadable
from convkit.worker.original.loading.loaded_model import LoadedModel


def load(source: Source) -> LoadedModel:
    """Load the archive. TorchScript has its own interpreter and unpickles no Python objects."""
    import torch

    from convkit.worker.original.loading.archive_as_module import ScriptArchive

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

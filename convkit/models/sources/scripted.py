"""A TorchScript archive, as torch.jit.save writes it."""

import inspect
import warnings
from pathlib import Path

import torch

from convkit.models.sources.archive_kinds import unreadable
from convkit.models.sources.loaded import LoadedModel
from convkit.worker.context import StageFailedError
from convkit.worker.protocol import Source


class ScriptArchive(torch.nn.Module):
    """Calls an archive's forward by its parameters' names.

    Modules and weights have the archive's own names: the archive itself is not a submodule.
    """

    def __init__(self, archive: torch.jit.ScriptModule) -> None:
        super().__init__()
        object.__setattr__(self, "archive", archive)
        for name, child in archive.named_children():
            self.add_module(name, child)
        for name, weight in archive.named_parameters(recurse=False):
            self.register_parameter(name, weight)
        for name, values in archive.named_buffers(recurse=False):
            self.register_buffer(name, values)

        def forward(**values: object) -> object:
            return archive(**values)

        forward.__signature__ = _signature(archive)  # type: ignore[attr-defined]
        self.forward = forward

    def train(self, mode: bool = True) -> "ScriptArchive":  # noqa: FBT001, FBT002 - torch's own signature
        """Switch the archive too."""
        super().train(mode)
        self.archive.train(mode)
        return self


def load(source: Source) -> LoadedModel:
    """Load the archive. TorchScript has its own interpreter and unpickles no Python objects."""
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


def _signature(archive: torch.jit.ScriptModule) -> inspect.Signature:
    """Return forward's parameters, from its schema, without self."""
    schema = archive.forward.schema
    return inspect.Signature(
        [
            inspect.Parameter(
                argument.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value
                if argument.has_default_value()
                else inspect.Parameter.empty,
            )
            for argument in schema.arguments[1:]
        ]
    )

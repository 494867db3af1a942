"""A TorchScript archive as a module that is called by name."""

import inspect

import torch


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

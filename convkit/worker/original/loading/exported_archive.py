"""An archive of torch.export, as torch.export.save writes it (`.pt2`)."""

import inspect
import io
import json
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.archive_kinds import archive_kind, unreadable
from convkit.worker.original.loading.loaded_model import LoadedModel

if TYPE_CHECKING:
    import torch

# How the names of members begin that hold a tensor's bytes and no pickle.
_RAW = ("weight_", "tensor_")


def load(source: Source) -> LoadedModel:
    """Load the program with its module hierarchy.

    torch unpickles parts of such an archive, which can run arbitrary code: unless
    `model.allow_pickle` is set, pickles that hold anything but tensors are refused.
    """
    import torch

    assert source.path is not None
    path = Path(source.path)
    if not path.is_file():
        raise StageFailedError(f"model.exported: there is no file {path}")
    if archive_kind(path) != "exported":
        raise unreadable("exported", path, None)
    if not source.allow_pickle:
        _refuse_code(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own deprecations
            program = torch.export.load(path)
            module = torch.export.unflatten(program)
    except Exception as error:  # a damaged archive can raise anything
        raise unreadable("exported", path, error) from error
    _bind_by_name(module, program)
    return LoadedModel(
        module=module.cpu(), description=f"torch.export {path.name}", example=_example(program)
    )


def _example(program: "torch.export.ExportedProgram") -> "dict[str, torch.Tensor] | None":
    """Return the inputs that the program was exported with; None unless each is a tensor."""
    import torch

    positional, keywords = program.example_inputs or ((), {})
    names = inspect.signature(program.module().forward).parameters
    given = dict(zip(names, positional, strict=False)) | keywords
    tensors = {name: each for name, each in given.items() if isinstance(each, torch.Tensor)}
    return tensors if tensors and len(tensors) == len(given) else None


def _refuse_code(path: Path) -> None:
    """Raise StageFailedError if torch would unpickle anything but tensors."""
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            pickles = {name: archive.read(name) for name in _pickles(archive)}
    except Exception as error:  # a damaged archive can raise anything
        raise unreadable("exported", path, error) from error
    for name, content in pickles.items():
        try:
            torch.load(io.BytesIO(content), weights_only=True)
        except Exception as error:
            raise StageFailedError(
                f"model.exported: {path.name} has a pickle that holds more than tensors ({name})"
                " and could run any code. If you trust the file, write model.allow_pickle: true."
            ) from error


def _pickles(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the members that torch unpickles: example inputs, and weights that are not raw bytes.

    Format: torch/export/pt2_archive/constants.py.
    """
    for name in archive.namelist():
        folder, _, file = name.rpartition("/")
        if file.endswith(".pt"):
            yield name
        elif file.endswith("_config.json") and folder.endswith(("data/weights", "data/constants")):
            members = json.loads(archive.read(name)).get("config", {}).values()
            yield from (
                f"{folder}/{each['path_name']}"
                for each in members
                if each["use_pickle"] or not each["path_name"].startswith(_RAW)
            )


def _bind_by_name(
    module: "torch.export.UnflattenedModule", program: "torch.export.ExportedProgram"
) -> None:
    """Let the module accept every input by its name: as exported, some are by position only."""
    names = list(inspect.signature(program.module().forward).parameters)
    positional, keywords = program.call_spec.in_spec.children()
    count = len(positional.children())
    call = module.forward

    def forward(**values: object) -> object:
        given = [values[name] for name in names[:count]]
        return call(*given, **{name: values[name] for name in keywords.context or ()})

    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names
    ]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    module.forward = forward

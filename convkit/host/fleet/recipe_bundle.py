"""Packs the files that a recipe refers to as one artifact in the shared store: workers cannot
access the user's folders.
"""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from convkit.host.recipe.keys.model_sources import FILE_KINDS
from convkit.host.recipe.keys.recipe import File, Model
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.store.external_weight_files import external_files
from convkit.protocol.errors import FleetError

_LEFT_OUT = frozenset({"__pycache__", ".git"})


@dataclasses.dataclass(frozen=True)
class Bundle:
    """Files by their relative names, and the recipe's place among them."""

    files: dict[str, Path]
    place: str


def bundle_of(loaded: LoadedRecipe) -> Bundle:
    """Return the files that a recipe refers to, preserving their relative locations.

    Raises FleetError for an absolute path, which would refer to a different file on another
    machine.
    """
    dirname = Path(os.path.normpath(loaded.dirname))
    found = [Path(os.path.normpath(file)) for file in _files(loaded)]
    top = Path(os.path.commonpath([dirname, *(file.parent for file in found)]))
    place = (dirname / loaded.path.name).relative_to(top).as_posix()
    return Bundle({file.relative_to(top).as_posix(): file for file in found}, place)


def _files(loaded: LoadedRecipe) -> Iterator[Path]:
    for part in loaded.graphs if loaded.recipe.parts else ():
        yield from _files(part)
    recipe, dirname = loaded.recipe, loaded.dirname
    for key, model in (("model", recipe.model), ("original", recipe.reference_model)):
        yield from _model_files(key, model, dirname)
    samples = [tensor.sample.file for tensor in recipe.inputs if isinstance(tensor.sample, File)]
    named = {f"inputs: sample: file: {name}": name for name in samples}
    if recipe.verify.texts:
        named["verify.texts"] = recipe.verify.texts
    if recipe.verify.example is not None:
        named["verify.example"] = recipe.verify.example
    for tensor in recipe.inputs:
        if tensor.preprocess is not None:
            key = f"inputs.{tensor.name}.preprocess"
            named |= {f"{key}: {file}": file for file in tensor.preprocess.named_files}
    if recipe.evaluate is not None:
        named |= {f"evaluate: {file}": file for file in recipe.evaluate.files}
    for target, settings in recipe.targets.items():
        named |= {f"targets.{target}: {file}": file for file in settings.files}
    named |= {
        f"custom_ops.{index}": entry.file
        for index, entry in enumerate(recipe.custom_ops)
        if entry.file is not None
    }
    for key, name in named.items():
        place = _place(key, name, dirname)
        yield from _tree(place, "") if place.is_dir() else (place,)


def _model_files(key: str, model: Model, dirname: Path) -> Iterator[Path]:
    for index, name in enumerate(model.files):
        yield _place(f"{key}.files.{index}", name, dirname)
    if model.path is not None:
        yield from _tree(_place(f"{key}.path", model.path, dirname), "")
    elif model.onnx is not None:
        file = _place(f"{key}.onnx", model.onnx, dirname)
        yield file
        yield from external_files(file)
    elif model.file is not None:
        kind = next(kind for kind in FILE_KINDS if getattr(model, kind) is not None)
        yield _place(f"{key}.{kind}", model.file, dirname)
    elif model.factory is not None:
        file = _place(f"{key}.factory.call", model.factory.call.rpartition(":")[0], dirname)
        yield file
        # A factory may import neighboring files.
        yield from (path for path in file.parent.glob("*.py") if path.is_file())
        for package in file.parent.glob("*/__init__.py"):
            yield from _tree(package.parent, ".py")


def _tree(folder: Path, suffix: str) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        yield from (Path(parent) / name for name in sorted(files) if name.endswith(suffix))


def _place(key: str, name: str, dirname: Path) -> Path:
    if Path(name).is_absolute():
        raise FleetError(
            f"{key}: {name} is an absolute path, which may be missing, or a different file, on the"
            " fleet's workers; write it relative to the recipe's folder"
        )
    return dirname / name

"""Folders without a config.json: what is in them, and what to pass to `convkit init` instead."""

import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path

from convkit.host.draft.other_libraries_folder import read_settings
from convkit.host.recipe.keys.model_sources import ARCHIVES

_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".ckpt"})
# Files that no recipe begins with, by what they belong to.
_OTHERS = {
    ".gguf": "a llama.cpp model (GGUF)",
    ".h5": "a Keras model",
    ".keras": "a Keras model",
    ".mlmodel": "a Core ML model",
    ".nemo": "a NeMo archive",
    ".pb": "a TensorFlow model",
    ".tflite": "a LiteRT model",
}
# Folders below the given one are searched this deep, and this many of each are listed.
_DEPTH = 3
_MOST = 4
# A folder of data may hold millions of files; a model's are among the first.
_MOST_FILES = 10_000
# What torch.jit.save adds to an archive, and torch.save does not.
_SCRIPTED = "/constants.pkl"


def missing_config_fault(folder: Path) -> str:
    """Return what to do about a folder that has no config.json, from the files that it has."""
    if not folder.is_dir():
        return f"{folder}: no such folder"
    files = list(itertools.islice(_files(folder, _DEPTH), _MOST_FILES))
    adapter = folder / "adapter_config.json"
    nested = [each.parent for each in files if each.name == "config.json" and _is_model(each)]
    portable = [each for each in files if _is_portable(each)]
    if adapter.is_file():
        advice = _adapter(adapter)
    elif nested:
        advice = f"Pass the folder that has one: {_listed(nested)}"
    elif portable:
        advice = f"Pass its model file: {_listed(portable)}"
    elif other := other_format(files):
        advice = other
    elif weights := [each for each in files if each.suffix in _WEIGHTS]:
        advice = _weights(weights)
    else:
        names = ", ".join(sorted(each.name for each in folder.iterdir())[:_MOST])
        advice = f"It has no model either, only {names}" if names else "The folder is empty"
    return f"{folder}: no config.json in this folder. {advice}"


def other_format(files: list[Path]) -> str | None:
    """Return advice for files in a format that no recipe begins with; None if there are none."""
    for file in files:
        if (kind := _OTHERS.get(file.suffix)) is not None:
            return (
                f"{file.name} is {kind}, which convkit does not read. Pass the PyTorch model that"
                " it was made from, or export it to ONNX and pass the .onnx file"
            )
    return None


def _adapter(config: Path) -> str:
    content = read_settings(config)
    base = content.get("base_model_name_or_path")
    named = f" for {base}" if isinstance(base, str) and base else ""
    return (
        f"It holds an adapter{named}, not a whole model. Merge the adapter into its base with peft"
        " (merge_and_unload, then save_pretrained), and pass the merged model's folder"
    )


def _weights(found: list[Path]) -> str:
    return (
        f"{found[0].name} holds weights without the code of their model. If transformers can load"
        " it, add its config.json. If not, write a function that builds the module and loads these"
        " weights in a file, such as build.py, and pass build.py:FUNCTION"
    )


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files of a folder and of those below it, the nearest first."""
    entries = sorted(folder.iterdir())
    yield from (each for each in entries if each.is_file())
    for each in entries:
        if depth > 0 and each.is_dir() and not each.name.startswith("."):
            yield from _files(each, depth - 1)


def _is_model(config: Path) -> bool:
    return "model_type" in read_settings(config)


def _is_portable(file: Path) -> bool:
    """Return whether a recipe can begin with the file: .pt and .pth are more often weights."""
    if file.suffix not in {".pt", ".pth"}:
        return file.suffix == ".onnx" or file.suffix in ARCHIVES
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith(_SCRIPTED) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _listed(paths: list[Path]) -> str:
    """Return the first paths, and how many more there are."""
    shown = " or ".join(map(str, paths[:_MOST]))
    more = len(paths) - _MOST
    return f"{shown}, or one of {more} more" if more > 0 else shown

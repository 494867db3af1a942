"""An .mlpackage on disk: its manifest, its model file, its weights. Reads no weights."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.coremltools_import import load_library

MANIFEST = "Manifest.json"
# Protocol buffers address a message with signed 32-bit offsets, so no parser can read a larger
# model file.
LARGEST_MODEL_FILE = 2**31 - 1

_ZIP_MAGIC = b"PK\x03\x04"


@dataclasses.dataclass(frozen=True)
class Item:
    """An entry of the manifest: a file or a folder, `path` relative to the package's
    Data folder.
    """

    path: str
    name: str
    author: str


@dataclasses.dataclass(frozen=True)
class ProgramPackage:
    """Locations of an .mlpackage's parts. `items` are sorted by path; `weights` may not exist."""

    path: Path
    data: Path
    model: Path
    weights: Path
    items: tuple[Item, ...]


def read_package(path: Path) -> ProgramPackage:
    """Read an .mlpackage's manifest; raises StageFailedError if it is not a sound package."""
    _refuse_other_things(path)
    manifest = _read_manifest(path)
    data = path / "Data"
    try:
        entries = dict(manifest["itemInfoEntries"])
        root = entries[manifest["rootModelIdentifier"]]["path"]
        items = [
            Item(str(each["path"]), str(each["name"]), str(each["author"]))
            for each in entries.values()
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise StageFailedError(
            f"{path}: {MANIFEST} does not describe a model ({error!r}). Convert it again."
        ) from error
    for item in items:
        _check_item(path, data, item)
    model = data / str(root)
    if not model.is_file():
        raise StageFailedError(
            f"{path}: the model file Data/{root} is not a file. Convert the model again."
        )
    return ProgramPackage(
        path,
        data,
        model,
        model.parent / "weights",
        tuple(sorted(items, key=lambda item: item.path)),
    )


def _refuse_other_things(path: Path) -> None:
    """Raise StageFailedError, with instructions, for things commonly mistaken for a package."""
    if not path.exists():
        raise StageFailedError(f"{path}: there is no such package")
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(len(_ZIP_MAGIC))
        if start == _ZIP_MAGIC:
            raise StageFailedError(
                f"{path}: a zip archive, not an .mlpackage folder. Unpack it and pass the folder."
            )
        if path.suffix == ".mlmodel":
            raise StageFailedError(
                f"{path}: a single .mlmodel file holds an older kind of model (a neural network),"
                " not an ML program. Convert with convert_to='mlprogram' and save as .mlpackage."
            )
        raise StageFailedError(f"{path}: a file, not an .mlpackage folder")
    if (path / "coremldata.bin").exists():
        raise StageFailedError(
            f"{path}: a compiled model (.mlmodelc); use the .mlpackage that it was compiled from"
        )


def _read_manifest(path: Path) -> Any:  # noqa: ANN401 - JSON, checked by the caller
    manifest = path / MANIFEST
    try:
        return json.loads(manifest.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StageFailedError(
            f"{path}: no {MANIFEST}: not an .mlpackage, or an incomplete copy of one"
        ) from error
    except (OSError, ValueError) as error:
        raise StageFailedError(
            f"{path}: {MANIFEST} cannot be read ({error}). Copy or convert it again."
        ) from error


def _check_item(path: Path, data: Path, item: Item) -> None:
    place = data / item.path
    if not place.resolve().is_relative_to(data.resolve()):
        raise StageFailedError(
            f"{path}: {MANIFEST} points outside the package ({item.path!r}). Do not use this file."
        )
    if not place.exists():
        raise StageFailedError(
            f"{path}: Data/{item.path} is missing: an incomplete copy. Copy or convert it again."
        )


def read_model(package: ProgramPackage) -> Any:  # noqa: ANN401 - a Model_pb2.Model, which has no type stubs
    """Parse the model file into a protocol buffer; raises StageFailedError."""
    load_library()
    from coremltools.proto import Model_pb2
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # no stubs here

    size = package.model.stat().st_size
    if size > LARGEST_MODEL_FILE:
        raise StageFailedError(
            f"{package.model}: {size:,} bytes, more than a protocol buffer can hold. Weights belong"
            " in their own file: convert with convert_to='mlprogram' and save as .mlpackage."
        )
    model = Model_pb2.Model()
    try:
        model.ParseFromString(package.model.read_bytes())
    except DecodeError as error:
        raise StageFailedError(
            f"{package.model}: damaged or truncated ({error}). Copy or convert it again."
        ) from error
    return model

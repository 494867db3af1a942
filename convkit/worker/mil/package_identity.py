"""The identity of an .mlpackage, independent of when and where it was created.

Two conversions of one model differ in three irrelevant ways: the manifest identifies its items by
random UUIDs, the maps in the model file are in hash-table order, and the metadata contain the date.
The digest ignores these and covers everything else: names and paths of the items, the program, the
interface, every metadata string, every weight.

Names of operations are part of the program, and coremltools numbers them per process: conversions
agree if each runs in its own process, as stages do.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_files import (
    MANIFEST,
    Item,
    ProgramPackage,
    read_model,
    read_package,
)

# Added to the metadata by coremltools in each conversion.
DATE_KEY = "com.github.apple.coremltools.conversion_date"
_CHUNK = 1 << 20
# The namespace of the items' identifiers in canonical packages: an arbitrary constant.
_ITEMS = uuid.UUID("6f1d3f5c-5b0e-4c59-9a0e-2f7b1c9d8e4a")


def package_digest(path: Path) -> str:
    """Return the canonical SHA-256 (hexadecimal) of an .mlpackage; raises StageFailedError for an
    unsound one.
    """
    package = read_package(path)
    whole = hashlib.sha256()
    for item in package.items:
        for file in _files(package, item):
            place = file.relative_to(package.data).as_posix()
            content = _model_digest(package) if file == package.model else _file_digest(file)
            # Fields end with NUL, which no path or name can contain, so different packages cannot
            # produce the same text.
            for field in (item.name, item.author, place):
                whole.update(field.encode() + b"\0")
            whole.update(content)
    return whole.hexdigest()


def make_canonical(path: Path) -> None:
    """Rewrite a package so that equal packages are byte-identical; raises StageFailedError for an
    unsound one.

    Items are named after their paths, maps are sorted, and the date and empty folders are removed.
    """
    remove_empty_items(path)
    package = read_package(path)
    model = read_model(package)
    model.description.metadata.userDefined.pop(DATE_KEY, None)
    package.model.write_bytes(model.SerializeToString(deterministic=True))
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    names = {
        identifier: str(uuid.uuid5(_ITEMS, entry["path"])).upper()
        for identifier, entry in manifest["itemInfoEntries"].items()
    }
    manifest["itemInfoEntries"] = {
        names[identifier]: entry for identifier, entry in manifest["itemInfoEntries"].items()
    }
    manifest["rootModelIdentifier"] = names[manifest["rootModelIdentifier"]]
    _write_manifest(path, manifest)


def remove_empty_items(path: Path) -> None:
    """Remove a package's empty folders, and its mention of them; raises StageFailedError for an
    unsound one.

    A program without weights has such a folder. Not every copy preserves it, and a package that
    mentions what it does not have is refused.
    """
    package = read_package(path)
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    kept = {
        identifier: entry
        for identifier, entry in manifest["itemInfoEntries"].items()
        if not _removed_if_empty(package.data / entry["path"])
    }
    if len(kept) < len(manifest["itemInfoEntries"]):
        _write_manifest(path, manifest | {"itemInfoEntries": kept})


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    (path / MANIFEST).write_text(
        json.dumps(manifest, indent=4, sort_keys=True) + "\n", encoding="utf-8"
    )


def _removed_if_empty(place: Path) -> bool:
    if not place.is_dir() or any(place.iterdir()):
        return False
    place.rmdir()
    return True


def _files(package: ProgramPackage, item: Item) -> Iterator[Path]:
    place = package.data / item.path
    files = (
        sorted(each for each in place.rglob("*") if not each.is_dir())
        if place.is_dir()
        else [place]
    )
    for file in files:
        if file.is_symlink():
            raise StageFailedError(
                f"{file}: a link inside a package; its content is another file's. Replace it with a"
                " copy."
            )
        yield file


def _model_digest(package: ProgramPackage) -> bytes:
    model = read_model(package)
    model.description.metadata.userDefined.pop(DATE_KEY, None)
    return hashlib.sha256(model.SerializeToString(deterministic=True)).digest()


def _file_digest(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()

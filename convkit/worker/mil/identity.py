"""What an .mlpackage is, apart from when and where it was made.

Two conversions of one model differ in three ways that mean nothing: the manifest names its items by random UUIDs, the
model file's maps stand in the order of a hash table, and the metadata hold the date. The digest leaves these out
and covers all else: names and places of the items, the program, the interface, every metadata text, every weight.

Names of operations are part of the program, and coremltools numbers them through the life of a process: conversions
agree when each runs in a process of its own, as stages do.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from convkit.worker.context import StageFailedError
from convkit.worker.mil.package import Item, Package, read_model, read_package

# What coremltools writes into the metadata at each conversion.
_DATE_KEY = "com.github.apple.coremltools.conversion_date"
_CHUNK = 1 << 20


def package_digest(path: Path) -> str:
    """Return the canonical SHA-256 (hexadecimal) of an .mlpackage; raises StageFailedError for an unsound one."""
    package = read_package(path)
    whole = hashlib.sha256()
    for item in package.items:
        for file in _files(package, item):
            place = file.relative_to(package.data).as_posix()
            content = _model_digest(package) if file == package.model else _file_digest(file)
            # Fields end with NUL, which no path or name can hold: no two packages run together to one text.
            for field in (item.name, item.author, place):
                whole.update(field.encode() + b"\0")
            whole.update(content)
    return whole.hexdigest()


def _files(package: Package, item: Item) -> Iterator[Path]:
    place = package.data / item.path
    files = sorted(each for each in place.rglob("*") if not each.is_dir()) if place.is_dir() else [place]
    for file in files:
        if file.is_symlink():
            raise StageFailedError(f"{file}: a link inside a package; its identity would be another file's. Copy it.")
        yield file


def _model_digest(package: Package) -> bytes:
    model = read_model(package)
    model.description.metadata.userDefined.pop(_DATE_KEY, None)
    return hashlib.sha256(model.SerializeToString(deterministic=True)).digest()


def _file_digest(file: Path) -> bytes:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.digest()

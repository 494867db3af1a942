"""Finds the files with an ONNX file's weights in its bytes: the host has no onnx."""

import mmap
import os
import re
from pathlib import Path

from convkit.protocol.errors import ModelFileError

# An entry of a tensor's external data, in protobuf encoding: field 1 is the key `location`, field 2
# the value, preceded by its length as a varint of one or two bytes.
# https://protobuf.dev/programming-guides/encoding/
_LOCATION = re.compile(
    rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x7f]))", re.DOTALL
)


def external_files(path: Path) -> list[Path]:
    """Return the sorted files, in the ONNX file's folder or below, that contain its weights.

    Files that do not exist are omitted, since loading the model reports them. Raises ModelFileError
    for a path that leaves the folder, by `..`, an absolute path or a link: such a file is not part
    of the model, but would be read, digested or sent to other machines.
    """
    folder = path.parent
    found = {folder / name for name in _locations(path) if (folder / name).is_file()}
    for file in sorted(found):
        name = os.path.relpath(file, folder)
        named_inside = file.is_relative_to(folder) and ".." not in file.relative_to(folder).parts
        if not named_inside or not file.resolve().is_relative_to(folder.resolve()):
            raise ModelFileError(
                f"{path}: its weights file {name!r} is outside the model's folder."
                " Put the weights' file beside the model, and name it without '..' or links."
            )
    return sorted(found)


def _locations(path: Path) -> set[str]:
    if path.stat().st_size == 0:
        return set()  # nothing to map
    names: set[str] = set()
    with (
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for match in _LOCATION.finditer(content):
            short, low, high = match.groups()
            length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
            try:
                name = content[match.end() : match.end() + length].decode()
            except UnicodeDecodeError:
                continue  # weight bytes that happen to look like an entry
            if "\0" not in name:
                names.add(name)
    return names

"""Which other files an ONNX file's weights lie in, read off its bytes: the host has no onnx."""

import mmap
import os
import re
from pathlib import Path

from convkit.errors import ModelFileError

# An entry of a tensor's external data, in protobuf's encoding: field 1 the key `location`, field 2
# the value, with its length as a varint of one or two bytes before it.
# https://protobuf.dev/programming-guides/encoding/
_LOCATION = re.compile(
    rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x7f]))", re.DOTALL
)


def external_files(path: Path) -> list[Path]:
    """Return the files, in the ONNX file's folder or below, that hold its weights; sorted.

    Files that do not exist are left out: loading the model says so. Raises ModelFileError for a
    place that leads outside the folder, by `..`, an absolute path or a link: such a file is not the
    model's, and would be read, digested or sent to other machines as if it were.
    """
    folder = path.parent
    found = {folder / name for name in _locations(path) if (folder / name).is_file()}
    for file in sorted(found):
        name = os.path.relpath(file, folder)
        named_inside = file.is_relative_to(folder) and ".." not in file.relative_to(folder).parts
        if not named_inside or not file.resolve().is_relative_to(folder.resolve()):
            raise ModelFileError(
                f"{path}: weights are said to lie in {name!r}, outside the model's folder."
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
                continue  # a weight whose bytes look like an entry
            if "\0" not in name:
                names.add(name)
    return names

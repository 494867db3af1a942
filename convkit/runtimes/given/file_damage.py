"""What is visibly wrong with a built file, from its bytes alone: cut off, or without its weights.
Needs no runtime, so that commands can refuse the file before any environment is made.
"""

import json
import mmap
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from convkit.protocol.json_codec import Json

_NOT_WHOLE = "it is truncated"
# Core ML's file of weights: a header, then blobs that each begin with a description.
_BLOB_HEADER, _BLOB_MARK = 64, 0xDEADBEEF
_BLOB_FILES = re.compile(rb"@model_path/([\w./-]+)")
# The vectors of a TFLite model's tables, by field: of other tables, or of items of so many bytes.
_TFLITE: dict[str, dict[int, str | int]] = {
    "model": {1: "code", 2: "graph", 3: 1, 4: "buffer"},
    "code": {},
    "graph": {0: "tensor", 1: 4, 2: 4, 3: "operator", 4: 1},
    "tensor": {0: 4, 3: 1},
    "operator": {1: 4, 2: 4},
    "buffer": {0: 1},
}
_MANIFEST = "Manifest.json"


def tflite_damage(path: Path) -> str | None:
    """Return what is wrong with a TFLite model; None if all of its buffers are there."""
    with path.open("rb") as file:
        head = file.read(8)
        if head[4:] != b"TFL3":
            return "it does not begin as a TFLite model does"
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                whole = _tflite_end(content) <= len(content)
            except struct.error:
                whole = False
    return None if whole else _NOT_WHOLE


def _tflite_end(content: mmap.mmap) -> int:
    """Return where the last part of a model ends; raises struct.error beyond the file's end."""
    return max(_ends(content, "model", _unsigned(content, 0)))


def _ends(content: mmap.mmap, kind: str, table: int) -> Iterator[int]:
    """Yield where a table, and all that it refers to, end."""
    layout = table - int(struct.unpack_from("<i", content, table)[0])
    if layout < 0:
        raise struct.error
    fields, size = struct.unpack_from("<HH", content, layout)
    yield max(layout + fields, table + size)
    for number, items in _TFLITE[kind].items():
        place = _field(content, table, layout, number)
        if place is None:
            continue
        vector = place + _unsigned(content, place)
        count = _unsigned(content, vector)
        yield vector + 4 + count * (items if isinstance(items, int) else 4)
        for element in range(vector + 4, vector + 4 + 4 * count, 4) if items in _TFLITE else ():
            yield from _ends(content, str(items), element + _unsigned(content, element))
    # Large models have weights after all tables: so many bytes at an offset.
    spots = [_field(content, table, layout, field) for field in (1, 2)]
    if kind == "buffer" and None not in spots:
        yield sum(struct.unpack_from("<Q", content, spot or 0)[0] for spot in spots)


def _field(content: mmap.mmap, table: int, layout: int, number: int) -> int | None:
    """Return where a table of a flat buffer has a field; None if it is left out."""
    if 4 + 2 * number >= struct.unpack_from("<H", content, layout)[0]:
        return None
    offset = int(struct.unpack_from("<H", content, layout + 4 + 2 * number)[0])
    return table + offset if offset else None


def _unsigned(content: mmap.mmap, place: int) -> int:
    return int(struct.unpack_from("<I", content, place)[0])


def ir_damage(path: Path) -> str | None:
    """Return what is wrong with an XML graph and its weights; None if they are complete."""
    end, root = 0, None
    try:
        for event, element in ET.iterparse(path, ("start", "end")):  # noqa: S314 - expat limits expansion
            root = element.tag if root is None else root
            if event == "end" and element.tag == "data" and "offset" in element.attrib:
                end = max(end, int(element.attrib["offset"]) + int(element.attrib.get("size", 0)))
    except ET.ParseError as error:
        return f"it is not complete XML ({error})"
    except ValueError:
        return "it has a weight without a valid place"
    if root != "net":
        return f"its root element is {root!r} instead of 'net'"
    weights = path.with_suffix(".bin")
    if not end:
        return None
    if not weights.is_file():
        return f"its weights, {weights.name}, are not beside it"
    size = weights.stat().st_size
    return f"{weights.name} has {size} of {end} bytes of weights" if size < end else None


def package_damage(path: Path) -> str | None:
    """Return what is wrong with an ML package; None if its model and weights are complete."""
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return f"it has no {_MANIFEST}"
    except ValueError:
        return f"its {_MANIFEST} is not valid JSON"
    model = _root_model(path, manifest)
    if model is None:
        return f"its {_MANIFEST} names no model"
    if not model.is_file():
        return f"{model.relative_to(path).as_posix()} is missing"
    content = model.read_bytes()
    if not _is_whole_message(content):
        return f"{model.name} is truncated or damaged"
    for name in sorted({match[1].decode() for match in _BLOB_FILES.finditer(content)}):
        weights = model.parent / name
        if not weights.is_file():
            return f"its weights, {name}, are missing"
        if not _has_whole_blobs(weights):
            return f"its weights, {name}, are truncated or damaged"
    return None


def _root_model(path: Path, manifest: Json) -> Path | None:
    if not isinstance(manifest, dict):
        return None
    items, root = manifest.get("itemInfoEntries"), manifest.get("rootModelIdentifier")
    entry = items.get(root) if isinstance(items, dict) and isinstance(root, str) else None
    inner = entry.get("path") if isinstance(entry, dict) else None
    return path / "Data" / inner if isinstance(inner, str) else None


def _is_whole_message(content: bytes) -> bool:
    """Return True if the fields of a protobuf message end exactly with its content."""
    place = 0
    try:
        while place < len(content):
            key, place = _varint(content, place)
            match key & 7:
                case 0:
                    _, place = _varint(content, place)
                case 1:
                    place += 8
                case 2:
                    size, place = _varint(content, place)
                    place += size
                case 5:
                    place += 4
                case _:
                    return False
    except IndexError:
        return False
    return 0 < place == len(content)


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number and where it ends; raises IndexError beyond the content's end."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise IndexError


def _has_whole_blobs(weights: Path) -> bool:
    """Return True if a file of weights has every blob that its header counts."""
    size = weights.stat().st_size
    with weights.open("rb") as file:
        try:
            (count,) = struct.unpack("<I", file.read(4))
            place = _BLOB_HEADER
            for _ in range(count):
                file.seek(place)
                mark, _, length, offset = struct.unpack("<IIQQ", file.read(24))
                if mark != _BLOB_MARK or offset + length > size:
                    return False
                place = -(-(offset + length) // _BLOB_HEADER) * _BLOB_HEADER
        except struct.error:
            return False
    return True

"""Checks whether a file is an ONNX model at all, and otherwise identifies it."""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from convkit.protocol.findings.finding import Finding, Place, Remedy

# Files commonly mistaken for a model, by their bytes at offset 0 or 4.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "a Git LFS pointer, not the model itself",
        "Run `git lfs pull` in the repository that it comes from.",
    ),
    (b"PK\x03\x04", "a zip archive, as torch.save and Core ML packages are", "Export it to ONNX."),
    (b"\x89HDF", "an HDF5 file, as Keras writes", "Export it to ONNX with tf2onnx."),
    (b"\x80\x02", "a Python pickle, as old torch.save", "Export it to ONNX."),
    (b"\x80\x04", "a Python pickle", "Export it to ONNX."),
    (b"<!DOCTYPE", "a web page", "Download the file itself."),
    (b"<html", "a web page", "Download the file itself."),
    (
        b"<?xml",
        "an XML file, such as a runtime's own format",
        "Use the ONNX file it was made from.",
    ),
    (b"GGUF", "a GGUF file", "Export the original model to ONNX."),
    (b"TFL3", "a TensorFlow Lite model", "Export it to ONNX with tf2onnx."),
)
_HEAD = 64


def read_file(path: Path) -> tuple[onnx.ModelProto | None, list[Finding]]:
    """Return a file's model without its external weights, or None with E231, which identifies the
    file.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    if not size:
        return None, [_unreadable(path, "is empty", "Write or copy the file again.", size)]
    for start, what, remedy in _OTHERS:
        if head.startswith(start) or head[4:].startswith(start):
            return None, [_unreadable(path, f"is {what}", remedy, size)]
    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError:
        return None, [
            _unreadable(
                path,
                f"has {size} bytes that are not a complete ONNX model: it is truncated, damaged or"
                " of another format",
                "Copy or export the file again.",
                size,
            )
        ]
    if not model.HasField("graph"):
        return None, [
            _unreadable(
                path, "contains no graph", "Export the file again, or copy all of it.", size
            )
        ]
    return model, []


def _unreadable(path: Path, what: str, remedy: str, size: int) -> Finding:
    return Finding(
        "E231",
        f"{path.name} is not a readable ONNX file: it {what}",
        Place(source=path.name),
        {"bytes": size},
        Remedy(remedy),
    )

"""Checks that the external weights of a graph are complete and next to it."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import onnx_ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.graph.graph_files import initializers

_BESIDE = "Put the file {file!r} beside the model, in the model's folder."
_COPY = "Copy both {file!r} and the model again, completely: the current files do not match."


def external_data_findings(model: onnx_ir.Model, folder: Path) -> list[Finding]:
    """Return E210 for each external weight file that is missing, elsewhere, or inconsistent with
    the model.

    The finding's place is the first weight concerned, and the file.
    """
    findings: dict[str, Finding] = {}
    for tensor in _external_tensors(model):
        location = str(tensor.location)
        if location in findings or (problem := _problem(tensor, location, folder)) is None:
            continue
        message, remedy = problem
        findings[location] = Finding(
            "E210",
            message,
            Place(tensor=tensor.name, source=location),
            {
                "file": location,
                "offset": tensor.offset or 0,
                "length": tensor.length,
                "needed": tensor.nbytes,
            },
            Remedy(remedy.format(file=location)),
        )
    for location, finding in _overlapping(model):
        findings.setdefault(location, finding)
    return list(findings.values())


def _overlapping(model: onnx_ir.Model) -> Iterator[tuple[str, Finding]]:
    """Yield the weights that overlap another's bytes: an offset is wrong.

    Two weights with exactly the same bytes are one, stored once.
    """
    tensors = sorted(
        ((str(each.location), each.offset or 0, each.nbytes, each.name or "") for each in
         _external_tensors(model)),
    )  # fmt: skip
    for (file, start, size, first), (other, offset, length, second) in itertools.pairwise(tensors):
        if file != other or offset >= start + size or (start, size) == (offset, length):
            continue
        message = (
            f"weights {first!r} and {second!r} overlap in {file!r}: one ends at byte"
            f" {start + size}, the other begins at {offset}"
        )
        evidence: dict[str, Json] = {"file": file, "offset": offset, "length": length}
        place = Place(tensor=second, source=file)
        yield file, Finding("E210", message, place, evidence, Remedy(_COPY.format(file=file)))


def _external_tensors(model: onnx_ir.Model) -> Iterator[onnx_ir.ExternalTensor]:
    for value in initializers(model):
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            yield value.const_value
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if not attribute.is_ref() and isinstance(attribute.value, onnx_ir.ExternalTensor):
                yield attribute.value


def _problem(tensor: onnx_ir.ExternalTensor, location: str, folder: Path) -> tuple[str, str] | None:
    """Return the problem with a weight's location, and the fix; None if it is correct."""
    file = folder / location
    if Path(location).is_absolute() or ".." in Path(location).parts:
        return f"the model refers to weights in {location!r}, outside the model's folder", _BESIDE
    if not file.exists():
        return (
            f"the weights file {location!r} is missing from the model's folder {folder.name}/",
            _BESIDE,
        )
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        return f"the weights file {location!r} points outside the model's folder", _BESIDE
    size, offset = file.stat().st_size, tensor.offset or 0
    length = tensor.nbytes if tensor.length is None else tensor.length
    if length != tensor.nbytes:
        message = (
            f"weight {tensor.name!r} has {length} bytes in {location!r}, but its shape and type"
            f" need {tensor.nbytes}"
        )
        return message, _COPY
    if offset < 0 or offset >= size:
        return (
            (
                f"weight {tensor.name!r} begins at byte {offset} of {location!r}, which has only"
                f" {size}"
            ),
            _COPY,
        )
    if offset + length > size:
        message = (
            f"{location!r} is truncated: weight {tensor.name!r} ends at byte {offset + length},"
            f" but the file ends at {size}"
        )
        return message, _COPY
    return None

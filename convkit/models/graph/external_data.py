"""Weights that lie outside the graph's file: is each of them there, whole, beside it?"""

from collections.abc import Iterator
from pathlib import Path

import onnx_ir

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.graph.files import initializers

_BESIDE = "Put the file {file!r} beside the model, in the model's folder."
_COPY = (
    "Copy {file!r} and the model again, whole and together: they do not belong to each other as"
    " they are."
)


def external_data_findings(model: onnx_ir.Model, folder: Path) -> list[Finding]:
    """Return E210 for each file of external weights that is missing, elsewhere, or not as the model
    says.

    The finding's place is the first weight that it concerns, and the file.
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
    return list(findings.values())


def _external_tensors(model: onnx_ir.Model) -> Iterator[onnx_ir.ExternalTensor]:
    for value in initializers(model):
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            yield value.const_value
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if not attribute.is_ref() and isinstance(attribute.value, onnx_ir.ExternalTensor):
                yield attribute.value


def _problem(tensor: onnx_ir.ExternalTensor, location: str, folder: Path) -> tuple[str, str] | None:
    """Return what is wrong with a weight's place, and what to do; None where it is right."""
    file = folder / location
    if Path(location).is_absolute() or ".." in Path(location).parts:
        return f"weights are said to lie in {location!r}, outside the model's folder", _BESIDE
    if not file.exists():
        return (
            f"the weights' file {location!r} is missing from the model's folder {folder.name}/",
            _BESIDE,
        )
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        return f"the weights' file {location!r} leads outside the model's folder", _BESIDE
    size, offset = file.stat().st_size, tensor.offset or 0
    length = tensor.nbytes if tensor.length is None else tensor.length
    if length != tensor.nbytes:
        message = (
            f"weight {tensor.name!r} has {length} bytes in {location!r}, and {tensor.nbytes} by its"
            " shape and type"
        )
        return message, _COPY
    if offset < 0 or offset >= size:
        return (
            f"weight {tensor.name!r} begins at byte {offset} of {location!r}, which has {size}",
            _COPY,
        )
    if offset + length > size:
        message = (
            f"{location!r} is truncated: weight {tensor.name!r} ends at byte {offset + length}, the"
            f" file at {size}"
        )
        return message, _COPY
    return None

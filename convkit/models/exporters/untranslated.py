"""Names the operator that an exporter cannot translate, and where the model calls it."""

import re

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.exporters.job import Job
from convkit.models.sources.operation_places import place_of_operator

# As torch's two exporters name it: `'aten::fft_rfft' to ONNX opset version 17 is not supported`,
# `No ONNX function found for <OpOverload(op='aten.fft_rfft', ...)>`.
_REFUSALS = (
    re.compile(r"operator '(?P<domain>\w+)::(?P<name>\w+)' to ONNX"),
    re.compile(r"No ONNX function found for <OpOverload\(op='(?P<domain>\w+)\.(?P<name>\w+)"),
)
# The domains of torch's own operators.
_OF_TORCH = frozenset({"aten", "prim", "prims", "torch", "quantized"})


def untranslated(job: Job, error: str) -> Finding | None:
    """Return V103 if an exporter stopped at an operator; None for any other error."""
    match = next((found for each in _REFUSALS if (found := each.search(error))), None)
    if match is None:
        return None
    operator = f"{match['domain']}::{match['name']}"
    root = job.loaded.source_root
    place = place_of_operator(job.module, job.probe.inputs, match["name"], root)
    source, module = place or (None, "")
    where = f" (module {module}" if module else " (the root module"
    where = f"{where}, at {source})" if source else f"{where})" if place else ""
    return Finding(
        "V103",
        f"the exporter has no translation of {operator}{where} to ONNX opset {job.opset}",
        Place(module=module or None, source=source),
        {"operators": [operator]},
        Remedy(_remedy(match["domain"], operator)),
    )


def _remedy(domain: str, operator: str) -> str:
    general = "Write the model without the operator, or try another exporter or opset under export."
    if domain in _OF_TORCH:
        return general
    return (
        f"Declare a translation of {operator}, custom_ops: [path/to/file.py:function], where the"
        " function returns a mapping from the operator to a function that writes it as ONNX."
    )

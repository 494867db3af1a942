"""Which scores an ONNX file's metadata names labels for."""

import onnx_ir as ir

from convkit.protocol.postprocessing_constants import Activation, LabelConstants
from convkit.worker.graph.class_labels import class_names

# What scores between 0 and 1 must exceed for each of several labels.
_THRESHOLD = 0.5


def labels_of(model: ir.Model) -> dict[str, LabelConstants]:
    """Return which labels the scores of an output [rows, labels] are for, by the file's metadata;
    nothing if it has none, or several outputs fit.
    """
    names = class_names(model.metadata_props)
    found = [
        value
        for value in model.graph.outputs
        if value.shape is not None and len(value.shape) == 2 and value.shape[1] == len(names)
    ]
    if len(names) < 2 or len(found) != 1 or found[0].name is None:
        return {}
    applied = _last_operator(found[0])
    threshold = _THRESHOLD if applied == "Sigmoid" else None
    activation: Activation = "none" if applied in ("Sigmoid", "Softmax") else "softmax"
    return {found[0].name: LabelConstants(names, activation, threshold)}


def _last_operator(value: ir.Value) -> str | None:
    """Return the operator that makes a value, behind those that change no number."""
    node = value.producer()
    while node is not None and node.op_type in ("Identity", "Cast", "Reshape", "Squeeze"):
        first = node.inputs[0]
        node = first.producer() if first is not None else None
    return None if node is None else node.op_type

"""Classifiers of scikit-learn's kind return one map per row, from class to probability (`ZipMap` of
ai.onnx.ml). A contract has tensors only, so such an output becomes a table: a row per map, a column
per class, classes in ascending order.
"""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper

# How an output's description begins if it was a sequence of maps; its classes follow.
_COLUMNS = "Probabilities, one column per class: "
# Classes that a description lists; more are counted.
_MOST_CLASSES = 12


def maps_as_tables(model: onnx.ModelProto) -> None:
    """Replace each sequence of maps that a graph returns by the table it was made from, in place.

    The output keeps its name; its description lists the classes.
    """
    graph = model.graph
    outputs = {value.name: value for value in graph.output}
    for place, node in enumerate(graph.node):
        if node.op_type != "ZipMap" or node.domain != "ai.onnx.ml":
            continue
        if (value := outputs.get(node.output[0])) is None:
            continue
        classes = _classes(node)
        graph.node[place].CopyFrom(_table(model, node, classes))
        value.CopyFrom(
            helper.make_tensor_value_info(
                value.name, onnx.TensorProto.FLOAT, [None, None], _described(classes)
            )
        )


def columns_of(description: str | None) -> str | None:
    """Return the classes of an output's columns as its description lists them; None if it was no
    sequence of maps.
    """
    if description is None or not description.startswith(_COLUMNS):
        return None
    return description.removeprefix(_COLUMNS)


def _described(classes: Sequence[int] | Sequence[str]) -> str:
    shown = ", ".join(map(str, sorted(classes)[:_MOST_CLASSES]))
    more = len(classes) - _MOST_CLASSES
    return f"{_COLUMNS}{shown}" + (f" and {more} more, in ascending order" if more > 0 else "")


def _classes(node: onnx.NodeProto) -> list[int] | list[str]:
    labels = {attribute.name: attribute for attribute in node.attribute}
    if "classlabels_strings" in labels:
        return [label.decode() for label in labels["classlabels_strings"].strings]
    return list(labels["classlabels_int64s"].ints) if "classlabels_int64s" in labels else []


def _table(
    model: onnx.ModelProto, node: onnx.NodeProto, classes: Sequence[int] | Sequence[str]
) -> onnx.NodeProto:
    """Return the node that makes the table, its columns in the order of the classes."""
    order = sorted(range(len(classes)), key=classes.__getitem__)
    if order == list(range(len(classes))):
        return helper.make_node("Identity", node.input, node.output, name=node.name)
    columns = f"{node.output[0]}/columns"
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(order, dtype=np.int64), columns)
    )
    inputs = [node.input[0], columns]
    return helper.make_node("Gather", inputs, node.output, name=node.name, axis=1)

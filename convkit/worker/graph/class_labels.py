"""Classifiers of scikit-learn's kind return one map per row, from class to probability (`ZipMap` of
ai.onnx.ml). A contract has tensors only, so such an output becomes a table: a row per map, a column
per class, classes in ascending order.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

# How an output's description begins if it was a sequence of maps; its classes follow.
_COLUMNS = "Probabilities, one column per class: "
# Classes that a description lists; more are counted.
_MOST_CLASSES = 12


_KEYS = ("names", "class_names", "classes", "labels", "id2label")


def maps_as_tables(model: "onnx.ModelProto") -> None:
    """Replace each sequence of maps that a graph returns by the table it was made from, in place.

    The output keeps its name; its description lists the classes.
    """
    import onnx

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
            onnx.helper.make_tensor_value_info(
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


def _classes(node: "onnx.NodeProto") -> list[int] | list[str]:
    labels = {attribute.name: attribute for attribute in node.attribute}
    if "classlabels_strings" in labels:
        return [label.decode() for label in labels["classlabels_strings"].strings]
    return list(labels["classlabels_int64s"].ints) if "classlabels_int64s" in labels else []


def _table(
    model: "onnx.ModelProto", node: "onnx.NodeProto", classes: Sequence[int] | Sequence[str]
) -> "onnx.NodeProto":
    """Return the node that makes the table, its columns in the order of the classes."""
    import onnx

    order = sorted(range(len(classes)), key=classes.__getitem__)
    if order == list(range(len(classes))):
        return onnx.helper.make_node("Identity", node.input, node.output, name=node.name)
    columns = f"{node.output[0]}/columns"
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array(order, dtype=np.int64), columns)
    )
    inputs = [node.input[0], columns]
    return onnx.helper.make_node("Gather", inputs, node.output, name=node.name, axis=1)


def class_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes' names in the order of their numbers; none if the metadata has none, or
    not one for each number from 0.
    """
    for key in _KEYS:
        if names := _names(_parsed(metadata.get(key, ""))):
            return names
    return ()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _names(found: object) -> tuple[str, ...]:
    if isinstance(found, Mapping):
        by_number = {str(number): name for number, name in found.items()}
        if set(by_number) != {str(number) for number in range(len(by_number))}:
            return ()
        found = [by_number[str(number)] for number in range(len(by_number))]
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        return ()
    return tuple(map(str, found))

"""The names of a model's classes, as exporters of detectors and classifiers write them into an ONNX
file's metadata: a list, or a map from numbers, as JSON or as Python prints it (Ultralytics:
`names` = "{0: 'person', 1: 'bicycle'}").
"""

import ast
import json
from collections.abc import Mapping

_KEYS = ("names", "class_names", "classes", "labels", "id2label")


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

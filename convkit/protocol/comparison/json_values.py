"""Finds the first difference between two JSON values."""

import dataclasses
import json
from typing import Any

from convkit.protocol.json_codec import Json

_ABSENT = "(absent)"


@dataclasses.dataclass(frozen=True)
class FirstDifference:
    """The first difference between two values: its path of keys, and both sides as JSON."""

    path: str
    first: str
    second: str


def first_difference(first: Json, second: Json, path: str = "$") -> FirstDifference | None:
    """Return the first difference between two JSON values, in the first one's order; None if they
    are equal.

    The order of keys does not matter. 1, 1.0 and true are distinct.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        for key in dict.fromkeys([*first, *second]):
            place = f"{path}.{key}"
            if key not in first or key not in second:
                return FirstDifference(place, _text(first, key), _text(second, key))
            if (found := first_difference(first[key], second[key], place)) is not None:
                return found
        return None
    if isinstance(first, list) and isinstance(second, list):
        for index in range(max(len(first), len(second))):
            place = f"{path}[{index}]"
            if index >= min(len(first), len(second)):
                return FirstDifference(
                    place,
                    _text(dict(enumerate(first)), index),
                    _text(dict(enumerate(second)), index),
                )
            if (found := first_difference(first[index], second[index], place)) is not None:
                return found
        return None
    # Compared as text: 1 is not true, and NaN, which Python's JSON allows, equals NaN.
    texts = json.dumps(first), json.dumps(second)
    return None if texts[0] == texts[1] else FirstDifference(path, *texts)


def _text(values: dict[Any, Json], key: object) -> str:
    return json.dumps(values[key]) if key in values else _ABSENT

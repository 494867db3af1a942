"""Plain YAML scalars by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema).

PyYAML follows YAML 1.1, where `1e-3` is text, `NO` is false, `on` is true, `1:30` is 90 and `012`
is ten.
"""

import json
import math
import re

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# Integers that every reader of the recipe as JSON can represent exactly: int64 and uint64.
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
_LONGEST = 30
_LONGEST_FLOAT = 100

PlainValue = None | bool | int | float | str


class ScalarError(ValueError):
    """A number that a recipe cannot represent; the message explains what to write instead."""


def plain_value(text: str) -> PlainValue:
    """Return the value of an unquoted scalar; raises ScalarError for a number that is out of range
    or not finite.
    """
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if not text[0].isascii() or text[0] not in "+-.0123456789":
        return text
    if _DECIMAL.fullmatch(text):
        return _whole(text, 10)
    if _OCTAL.fullmatch(text):
        return _whole(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return _whole(text[2:], 16)
    if _FLOAT.fullmatch(text):
        value = float(text) if len(text) <= _LONGEST_FLOAT else math.inf
        if not math.isfinite(value):
            raise ScalarError(
                "the number does not fit into a float64; write a smaller or shorter one"
            )
        return value
    if _NOT_FINITE.fullmatch(text):
        raise ScalarError(f"found {text}; write a finite number")
    return text


def _whole(digits: str, base: int) -> int:
    if len(digits.lstrip("+-0")) > (64 if base == 8 else _LONGEST):
        raise ScalarError("the number does not fit into 64 bits; write a smaller one")
    value = int(digits, base)
    if not _SMALLEST <= value <= _LARGEST:
        raise ScalarError("the number does not fit into 64 bits; write a smaller one")
    return value


def is_text(value: str) -> bool:
    """Return whether a scalar that is not quoted is read as the same text."""
    try:
        return plain_value(value) == value
    except ScalarError:
        return False


def yaml_scalar(value: str | int) -> str:
    """Return a value as YAML, quoted if it would otherwise not be read as the same text."""
    if isinstance(value, int):
        return str(value)
    plain = re.fullmatch(r"[\w./+-]+( [\w./+*-]+)*", value) and value[0] not in "-?"
    return value if plain and is_text(value) else json.dumps(value, ensure_ascii=False)
